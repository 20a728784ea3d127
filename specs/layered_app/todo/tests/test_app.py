"""What the to-do list must do, whatever feedback adds to it."""

from backend.app import App
from frontend.app import page


def test_a_task_that_was_added_is_listed_and_shown() -> None:
    app = App()
    status, task = app.call("POST", "/tasks", {"title": "Buy <milk>"})
    assert status == 201
    assert app.call("GET", "/tasks", {}) == (200, [task])
    shown = page(app.call("GET", "/tasks", {})[1])
    assert "Buy &lt;milk&gt;" in shown
    assert "<milk>" not in shown


def test_a_task_can_be_ticked_off() -> None:
    app = App()
    number = app.call("POST", "/tasks", {"title": "Buy milk"})[1]["id"]
    status, task = app.call("POST", f"/tasks/{number}/done", {})
    assert (status, task["done"]) == (200, True)
    assert app.call("POST", "/tasks/99/done", {})[0] == 404


def test_a_task_without_a_title_is_refused() -> None:
    app = App()
    assert app.call("POST", "/tasks", {"title": "  "})[0] == 400
    assert app.call("GET", "/tasks", {}) == (200, [])
    assert app.call("GET", "/nowhere", {})[0] == 404
