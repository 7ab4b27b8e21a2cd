"""`hawser limits`."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run
from tests.cli.given import Given


def test_a_limit_is_set_listed_and_cleared(given: Given, run: Run):
    given.ready(queue="mail")
    said = run("limits", "set", "--queue", "mail", "--running", "5", "--rate", "100/m", "--max-depth", "1000", "--reason", "slow")
    assert said.stdout == "queue mail: at most 5 at once, 100/m, 1,000 waiting\n"
    assert said.stderr == ""
    [limit] = json.loads(run("limits", "--json").stdout)["limits"]
    assert (limit["kind"], limit["name"], limit["max_running"], limit["rate"], limit["max_depth"]) == (
        "queue",
        "mail",
        5,
        "100/m",
        1000,
    )
    assert (limit["running"], limit["started"], limit["shut"], limit["set"]) == (0, 0, False, True)
    assert "0 of 5" in run("limits").stdout
    assert "1,000" in run("queues").stdout
    assert run("limits", "clear", "--queue", "mail").stdout == "queue mail: what was set is taken back\n"
    assert run("limits", "clear", "--queue", "mail").stdout == "queue mail: nothing was set\n"
    assert run("limits").stderr == "no queue and no task has a limit\n"


def test_a_queue_that_was_never_used_is_limited_with_a_warning(given: Given, run: Run):
    given.ready(queue="mail")
    said = run("limits", "set", "--queue", "mial", "--running", "5")
    assert said.exit_code == 0
    assert "queue 'mial' was not used so far" in said.stderr
    assert "mail" in said.stderr


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        (("--queue", "mail", "--rate", "fast"), "rate"),
        (("--queue", "mail", "--rate", "0/s"), "rate"),
        (("--queue", "mail", "--running", "0"), "running"),
        (("--queue", "mail", "--max-depth", "-1"), "max_depth"),
        (("--task", "nowhere", "--running", "1"), "task"),
        (("--task", "nowhere", "--max-depth", "1"), "max_depth"),
        (("--queue", "mail", "--running", "1", "--per-group"), "per_group"),
        (("--task", "nowhere", "--per-group"), "per_group"),
        (("--task", "nowhere", "--running", "2", "--per-group", "--ordered"), "ordered"),
        (("--task", "nowhere", "--running", "1", "--ordered"), "ordered"),
        (("--running", "1"), "queue"),
        (("--queue", "mail", "--task", "x", "--running", "1"), "queue"),
    ],
)
def test_a_wrong_limit_is_bad_usage_and_writes_nothing(run: Run, given_: tuple[str, ...], field: str):
    said = run("limits", "set", *given_)
    assert said.exit_code == 2
    assert field in said.stderr
    assert json.loads(run("limits", "--json").stdout) == {"limits": []}


def test_a_limit_per_group_is_set_and_listed(given: Given, run: Run):
    given.ready(task="sync")
    said = run("limits", "set", "--task", "sync", "--running", "1", "--rate", "10/s", "--per-group", "--ordered")
    assert said.stdout == "task sync: at most 1 at once, 10/s, in each group, in order\n"
    [limit] = json.loads(run("limits", "--json").stdout)["limits"]
    assert (limit["per_group"], limit["ordered"], limit["shut"], limit["shut_groups"]) == (True, True, False, 0)
    assert "0, 1 each" in run("limits").stdout
    assert "10/s each" in run("limits").stdout
