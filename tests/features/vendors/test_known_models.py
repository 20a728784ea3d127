"""The hint of an unknown model: the models that the server lists."""

from orch23.features.vendors.openai_client import is_unknown_model, with_known_models
from orch23.model.diagnostic import Diagnostic
from orch23.providers.faults import TransportError, status_error


def refused(said: str = "The model `gtp-5` does not exist") -> TransportError:
    return status_error("http://x/v1", 404, said)


def hint_of(*names: str) -> str | None:
    return with_known_models(refused(), lambda: names).diagnostic.hint


def test_the_nearest_model_and_the_others_are_named() -> None:
    assert hint_of("gpt-5", "llama") == (
        "did you mean `gpt-5`? write a model of this server in `llm.model`; it has `gpt-5`, `llama`"
    )
    assert hint_of("llama") == "write a model of this server in `llm.model`; it has `llama`"


def test_the_nearest_model_comes_first_and_is_the_fix() -> None:
    found = with_known_models(refused(), lambda: ("a", "llama", "gpt-5", "zed")).diagnostic
    assert str(found.hint).endswith("it has `gpt-5`, `a`, `llama`, `zed`")
    assert found.fix == ("gtp-5", "gpt-5")


def test_a_long_list_is_cut_and_a_long_name_left_out() -> None:
    hint = hint_of(*(f"m{n:03}" for n in range(3_000)), "x" * 5_000)
    assert hint is not None
    assert hint.endswith("`m005` and 994 more")


def test_a_server_that_lists_nothing_changes_only_the_hint() -> None:
    def fails() -> list[str]:
        raise RuntimeError

    fault = with_known_models(refused(), fails)
    assert fault.diagnostic.hint == (
        "the server does not list its models: write the exact name from its documentation in `llm.model`; if it is "
        "written like that, the account of your key has no access to it"
    )
    assert fault.diagnostic.fix is None
    assert (fault.status, fault.diagnostic.code, fault.transient, fault.charged) == (404, "E415", False, False)


def test_only_a_404_about_a_model_counts() -> None:
    assert is_unknown_model(refused())
    assert not is_unknown_model(refused("no such page"))
    assert not is_unknown_model(status_error("http://x/v1", 400, "the model is wrong"))
    assert not is_unknown_model(TransportError(Diagnostic("E410", "no model"), status=None))
