"""Bad input on the command line: the words of Python, the code of bad usage or of an error, and nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from hawser import Hawser
from hawser.errors import HawserError
from hawser.value.ids import new_id
from tests.cli.conftest import Run
from tests.cli.given import Given

UNKNOWN = new_id()
LONG = "g" * 129
EMAIL = ("enqueue", "shop:app", "send_email", "--json", '{"to": "ann"}')


class Case(NamedTuple):
    """What is typed, and the same in Python: both say the same."""

    typed: tuple[str, ...]
    in_python: Callable[[Hawser], Any]


def enqueue(**options: Any) -> Callable[[Hawser], Any]:
    return lambda app: app.enqueue("send_email", {"to": "ann"}, **options)


CASES = {
    "a rate that is none": Case(
        ("limits", "set", "--task", "charge", "--rate", "fast"), lambda app: app.set_limit(task="charge", rate="fast")
    ),
    "a limit of 0": Case(
        ("limits", "set", "--queue", "mail", "--running", "0"), lambda app: app.set_limit(queue="mail", running=0)
    ),
    "a limit on an unknown task": Case(
        ("limits", "set", "--task", "chrage", "--running", "1"), lambda app: app.set_limit(task="chrage", running=1)
    ),
    "a limit of no target": Case(("limits", "set", "--running", "1"), lambda app: app.set_limit(running=1)),
    "a breaker of an unknown task": Case(("breakers", "open", "chrage"), lambda app: app.open_breaker("chrage")),
    "a weight of 0": Case(
        ("queues", "weight", "mail", "acme", "0"), lambda app: app.set_weight(queue="mail", group="acme", weight=0)
    ),
    "a weight of a long group": Case(
        ("queues", "weight", "mail", LONG, "2"), lambda app: app.set_weight(queue="mail", group=LONG, weight=2)
    ),
    "a group that is too long": Case((*EMAIL, "--group", LONG), enqueue(group=LONG)),
    "an empty group": Case((*EMAIL, "--group", ""), enqueue(group="")),
    "debounce without a key": Case((*EMAIL, "--debounce", "5"), enqueue(debounce=5.0)),
    "at_most without debounce": Case((*EMAIL, "--key", "k", "--at-most", "5"), enqueue(key="k", at_most=5.0)),
    "an expiry at once": Case((*EMAIL, "--expires", "0"), enqueue(expires=0.0)),
    "an expiry before the due time": Case((*EMAIL, "--expires", "5", "--delay", "60"), enqueue(expires=5.0, delay=60.0)),
    "after an unknown job": Case((*EMAIL, "--after", UNKNOWN), enqueue(after=[UNKNOWN])),
    "after what is no job": Case((*EMAIL, "--after", "nonsense"), enqueue(after=["nonsense"])),
    "a batch that was never opened": Case((*EMAIL, "--batch", UNKNOWN), enqueue(batch=UNKNOWN)),
    "an id that is none": Case((*EMAIL, "--id", "me"), enqueue(id="me")),
    "a batch that nobody knows": Case(("batches", "close", UNKNOWN), lambda app: app.close_batch(UNKNOWN)),
    "a change of nothing that is there": Case(
        ("jobs", "change", UNKNOWN, "--priority", "1"), lambda app: app.change(UNKNOWN, priority=1)
    ),
    "an event without a name": Case(("emit", ""), lambda app: app.emit("")),
    "an event that is too large": Case(
        ("emit", "paid", "--body", json.dumps("x" * 300_000)), lambda app: app.emit("paid", "x" * 300_000)
    ),
    "an event that is kept for no time": Case(("emit", "paid", "--keep", "0"), lambda app: app.emit("paid", keep=0.0)),
    "a rewind of what is not there": Case(("rewind", UNKNOWN, "--to", "a"), lambda app: app.rewind(UNKNOWN, to="a")),
    "steps of what is not there": Case(("steps", UNKNOWN), lambda app: app.steps(UNKNOWN)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_command_line_says_what_python_says(given: Given, shop: str, run: Run, name: str):
    typed, in_python = CASES[name]
    app = Hawser(given.url)
    app.task(name="send_email", queue="mail")(lambda to, template="welcome": None)
    app.task(name="charge")(lambda order=0: None)
    with pytest.raises(HawserError) as refused:
        in_python(app)
    app.close()
    said = run(*typed, *(() if typed[0] == "enqueue" else ("--app", shop)))
    assert said.exit_code in (1, 2), said.output
    assert _words(str(refused.value)) in _words(said.stderr)
    stats = given.ask(given.store.stats())
    assert (stats.ready, stats.scheduled, stats.held) == (0, 0, 0)
    assert given.ask(given.store.limits()) == []
    assert given.ask(given.store.weights()) == []
    assert given.ask(given.store.audit()) == []
    assert given.ask(given.store.event("paid")) is None


def _words(text: str) -> str:
    """Without the line ends that a terminal adds."""
    return " ".join(text.split())
