"""`hawser breakers`."""

from __future__ import annotations

import json

from hawser.breaker import Breaker
from hawser.store.breakers import BreakerVerdict
from tests.cli.conftest import Run
from tests.cli.given import Given


def test_breakers_are_listed_opened_and_closed(given: Given, run: Run):
    assert run("breakers").stderr == "no task has a breaker\n"
    given.ready("pay")
    given.ask(given.store.declare_breakers({"pay": Breaker(share=0.8, window=300, least=20, probe_every=60)}))
    head, row = run("breakers").stdout.splitlines()
    assert head.split() == ["TASK", "BREAKER", "SINCE", "BY", "ABOUT"]
    assert row.split()[:2] == ["pay", "closed"]
    assert row.endswith("opens at 80% of at least 20 attempts in 300 s")
    said = run("breakers", "open", "pay", "--reason", "the bank asked for it")
    assert said.stdout == "the breaker of task pay is open until a person closes it\n"
    assert run("breakers", "open", "pay").stdout == "the breaker of task pay was opened by a person before\n"
    [shown] = json.loads(run("breakers", "--json").stdout)["breakers"]
    assert (shown["task"], shown["open"], shown["by_hand"], shown["probe_at"], shown["probe"]) == ("pay", True, True, None, None)
    assert "until a person closes it" in run("breakers", "ls").stdout
    assert json.loads(run("breakers", "close", "pay", "--json").stdout) == {"task": "pay", "open": False, "changed": True}
    assert run("breakers", "close", "pay").stdout == "the breaker of task pay was closed\n"
    assert [(record.action, record.reason) for record in given.audit()] == [
        ("close_breaker", None),
        ("open_breaker", "the bank asked for it"),
    ]


def test_one_that_attempts_opened_says_on_what_and_when_it_tries(given: Given, run: Run):
    given.ready("pay")
    given.ask(given.store.declare_breakers({"pay": Breaker(share=0.8, window=300, least=20, probe_every=60)}))
    [status] = given.ask(given.store.breakers())
    verdict = BreakerVerdict(task="pay", revision=status.revision, open=True, failed=199, attempts=240)
    assert given.ask(given.store.judge([verdict])) == [True]
    assert "199 of 240 attempts failed, next probe at " in " ".join(run("breakers").stdout.split())
    [shown] = json.loads(run("breakers", "ls", "--json").stdout)["breakers"]
    assert (shown["failed"], shown["attempts"], shown["by_hand"]) == (199, 240, False)
    assert shown["probe_at"] is not None
    assert run("breakers", "close", "pay").stdout == "the breaker of task pay is closed\n"
