"""Options of the command line that a variable of the environment can set as well."""

import os
import shlex
from functools import partial
from typing import Any

import click


class Option(click.Option):
    """An option whose variable is named after its flag: `--set` of `orch23 build` is ORCH23_BUILD_SET.

    One without a long flag takes the name of its parameter. A repeatable one takes several values, quoted as in a
    shell.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the text of the option's variable; None where it is not set, or empty."""
        named = click.Parameter.resolve_envvar_value(self, ctx)
        variable = self.variable(ctx)
        return named if named is not None or variable is None else os.environ.get(variable) or None

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return what the option's variable sets: values of a repeatable one, and nothing where a flag is off."""
        if not self.multiple:
            value = super().value_from_envvar(ctx)
            return None if value is False and not self.is_bool_flag else value
        text = self.resolve_envvar_value(ctx)
        try:
            return None if text is None else shlex.split(text)
        except ValueError as error:
            message = f"{self.variable(ctx)} is not quoted as in a shell: {error}"
            raise click.BadParameter(message, ctx=ctx, param=self) from error

    def variable(self, ctx: click.Context) -> str | None:
        """Return the name of the option's variable; None where the program has none."""
        if ctx.auto_envvar_prefix is None:
            return None
        flag = next((one.removeprefix("--") for one in self.opts if one.startswith("--")), self.name or "")
        return f"{ctx.auto_envvar_prefix}_{flag.replace('-', '_').upper()}"


option = partial(click.option, cls=Option)
