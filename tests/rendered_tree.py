"""Render a tree of expressions; return its value and its errors."""

from orch23.language.expressions import render_watched


def render_tree(tree, names, at):
    rendered = render_watched(tree, names, at)
    return rendered.tree, rendered.errors
