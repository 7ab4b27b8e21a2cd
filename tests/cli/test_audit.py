"""`hawser audit`: who did what."""

import json

from tests.cli.conftest import Run
from tests.cli.given import HOSTILE, Given


def test_records_are_listed_newest_first_and_paged(run: Run, given: Given):
    for name in ("a", "b", "c"):
        run("queues", "pause", name, "--reason", f"because of {name}")
    first = json.loads(run("audit", "--json", "--limit", "2").stdout)
    assert [(record["target"], record["reason"]) for record in first["audit"]] == [
        ("queue:c", "because of c"),
        ("queue:b", "because of b"),
    ]
    assert all(record["by"].startswith("cli") and record["action"] == "pause" for record in first["audit"])
    second = json.loads(run("audit", "ls", "--json", "--limit", "2", "--after", str(first["next"])).stdout)
    assert ([record["target"] for record in second["audit"]], second["next"]) == (["queue:a"], None)
    shown = run("audit", "--limit", "2")
    assert shown.stdout.index("queue:c") < shown.stdout.index("queue:b")
    assert "because of b" in shown.stdout
    assert f"there are more: add --after {first['next']}" in shown.stderr


def test_records_are_chosen_by_action_and_by_who(run: Run, given: Given):
    run("queues", "pause", "a")
    run("queues", "resume", "a")
    assert [r["action"] for r in json.loads(run("audit", "--json", "--action", "resume").stdout)["audit"]] == ["resume"]
    assert len(json.loads(run("audit", "--json", "--by", "cli").stdout)["audit"]) == 2
    assert "no records match" in run("audit", "--by", "clo").stderr


def test_a_bulk_action_shows_its_filter_and_its_jobs(run: Run, given: Given):
    dead = [given.dead() for _ in range(3)]
    given.dead(queue="other")
    assert run("dlq", "replay", "--queue", "default", "--yes", "--rate", "1000").exit_code == 0
    [record] = json.loads(run("audit", "--json").stdout)["audit"]
    assert (record["action"], record["count"], record["filter"]) == ("requeue", 3, {"state": "dead", "queue": "default"})
    assert sorted(record["ids"]) == sorted(dead)
    assert "state=dead queue=default" in run("audit").stdout
    assert run("jobs", "cancel", "--task", "send_email", "--yes", "--rate", "1000").exit_code == 0
    [record, _] = json.loads(run("audit", "--json").stdout)["audit"]
    assert record["filter"] == {"state": "ready", "task": "send_email"}
    assert run("dlq", "discard", "--all", "--reason", "old", "--yes").exit_code == 0
    assert json.loads(run("audit", "--json", "--limit", "1").stdout)["audit"][0]["filter"] == {"state": "dead"}


def test_nothing_to_list_says_so(run: Run):
    assert "no operator has done anything yet" in run("audit").stderr


def test_hostile_reasons_do_no_harm(run: Run, given: Given):
    run("queues", "pause", "a", "--reason", HOSTILE)
    assert "\x1b" not in run("audit").stdout
    assert run("audit", "--limit", "0").exit_code == 2


def test_records_are_chosen_by_what_was_acted_on(run: Run, given: Given):
    one, two = given.dead(), given.dead()
    run("queues", "pause", "a")
    assert run("dlq", "replay", "--queue", "default", "--yes", "--rate", "1000").exit_code == 0
    run("jobs", "cancel", one)
    chosen = json.loads(run("audit", "--json", "--target", one).stdout)["audit"]
    assert [record["action"] for record in chosen] == ["cancel", "requeue"], "also in a record of several jobs"
    first = json.loads(run("audit", "--json", "--target", one, "--limit", "1").stdout)
    assert ([record["action"] for record in first["audit"]], first["next"]) == (["cancel"], first["audit"][0]["number"])
    rest = json.loads(run("audit", "--json", "--target", one, "--limit", "1", "--after", str(first["next"])).stdout)
    assert ([record["action"] for record in rest["audit"]], rest["next"]) == (["requeue"], None)
    assert [record["action"] for record in json.loads(run("audit", "--json", "--target", two).stdout)["audit"]] == ["requeue"]
    assert "queue:a" in run("audit", "--target", "queue:a").stdout
    assert "no records match" in run("audit", "--target", "queue:b").stderr


def test_records_are_chosen_by_time(run: Run, given: Given):
    run("queues", "pause", "a")
    [record] = json.loads(run("audit", "--json", "--since", "1h").stdout)["audit"]
    assert "no records match" in run("audit", "--since", "2999-01-01T00:00Z").stderr
    shown = run("audit", "--json", "--since", record["at"], "--limit", "1")
    assert len(json.loads(shown.stdout)["audit"]) == 1
    assert run("audit", "--since", "never").exit_code == 2
