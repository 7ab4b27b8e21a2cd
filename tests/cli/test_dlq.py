"""`hawser dlq`."""

import json

import pytest

from hawser.job import State
from tests.cli.conftest import Run
from tests.cli.given import Given


def test_dead_jobs_are_listed_with_their_last_error(given: Given, run: Run):
    dead = given.dead(error="OSError: connection refused\nmore")
    given.ready()
    head, row = run("dlq").stdout.splitlines()
    assert head.split() == ["ID", "TASK", "QUEUE", "ATTEMPT", "WHEN", "ERROR"]
    assert row.split()[:4] == [dead, "send_email", "default", "1/1"]
    assert row.endswith("OSError: connection refused")


def test_dead_jobs_are_filtered(given: Given, run: Run):
    given.dead()
    wanted = given.dead("resize", queue="bulk")
    [job] = json.loads(run("dlq", "--task", "resize", "--queue", "bulk", "--json").stdout)["jobs"]
    assert job["id"] == wanted


def test_groups_are_listed_and_replayed(given: Given, run: Run):
    wanted = [given.dead(error=f"ValueError: {n}") for n in range(3)]
    other = given.dead(error="KeyError: 'x'")
    head, first, second = run("dlq", "groups").stdout.splitlines()
    assert head.split() == ["COUNT", "TASK", "LAST", "ERROR", "GROUP"]
    assert (first.split()[0], second.split()[0]) == ("3", "1")
    group = json.loads(run("dlq", "groups", "--json").stdout)["groups"][0]
    assert (group["count"], group["sample_id"], first.split()[-1]) == (3, wanted[-1], group["id"])
    assert [job["id"] for job in json.loads(run("dlq", "--group", group["id"], "--json").stdout)["jobs"]] == wanted[::-1]
    assert run("dlq", "replay", "--group", group["id"], "--yes").stdout == "3 jobs replayed\n"
    assert given.job(other).state is State.DEAD
    assert "is not the id of a group" in run("dlq", "--group", "nonsense").stderr


def test_a_dead_job_is_shown(given: Given, run: Run):
    id = given.dead()
    assert "ValueError: no such user" in run("dlq", "show", id).stdout
    assert json.loads(run("dlq", "show", id, "--json").stdout)["state"] == "dead"


def test_a_living_job_is_shown_elsewhere(given: Given, run: Run):
    id = given.ready()
    result = run("dlq", "show", id)
    assert result.exit_code == 1
    assert f"is ready, not dead; see it with: hawser jobs show {id}" in result.stderr


def test_named_jobs_are_replayed(given: Given, run: Run):
    first, second = given.dead(), given.dead()
    result = run("dlq", "replay", first, second)
    assert result.stdout.splitlines() == [f"{first}  ready again", f"{second}  ready again"]
    assert given.job(first).state is given.job(second).state is State.READY


def test_matching_jobs_are_replayed_in_few_writes(given: Given, run: Run):
    wanted = [given.dead("resize") for _ in range(7)]
    other = given.dead()
    result = run("dlq", "replay", "--task", "resize", "--rate", "10000", "--yes", "--reason", "disk is back")
    assert (result.exit_code, result.stdout) == (0, "7 jobs replayed\n")
    assert {given.job(id).state for id in wanted} == {State.READY}
    assert given.job(other).state is State.DEAD
    assert [(record.count, record.reason) for record in given.audit()] == [(7, "disk is back")]


def test_all_are_replayed_page_by_page(given: Given, run: Run):
    for _ in range(120):
        given.dead()
    assert json.loads(run("dlq", "replay", "--all", "--rate", "10000", "-y", "--json").stdout) == {
        "replayed": 120,
        "skipped": 0,
        "skipped_jobs": [],
    }
    assert json.loads(run("dlq", "--json").stdout)["jobs"] == []


def test_one_is_tried_before_the_rest(given: Given, run: Run):
    for _ in range(3):
        given.dead()
    assert run("dlq", "replay", "--all", "--limit", "1", "--rate", "1000", "--yes").stdout == "1 job replayed\n"
    assert len(json.loads(run("dlq", "--json").stdout)["jobs"]) == 2
    assert run("dlq", "discard", "--all", "--limit", "5", "--reason", "r", "--yes").stdout == "2 jobs discarded\n"
    refused = run("dlq", "replay", "--all", "--limit", "0", "--yes")
    assert (refused.exit_code, "--limit" in refused.stderr) == (2, True)


def test_nothing_to_replay_is_no_failure(run: Run):
    assert run("dlq", "replay", "--all", "--yes").stdout == "0 jobs replayed\n"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "which jobs?"),
        (("x", "--all"), "not both"),
        (("x", "--task", "t"), "not both"),
        (("--all",), "add --yes"),
        (("--all", "--yes", "--rate", "0"), "--rate"),
        (("--all", "--yes", "--rate", "nan"), "--rate"),
        (("--all", "--payload", "{}"), "exactly one job"),
        (("x", "--payload", "{}"), "--payload needs --app"),
        (("x", "--payload", "{"), "at character 2"),
    ],
)
def test_an_unclear_replay_is_bad_usage(run: Run, args: tuple[str, ...], text: str):
    result = run("dlq", "replay", *args)
    assert result.exit_code == 2
    assert text in result.stderr


@pytest.mark.parametrize(("answer", "state", "code"), [("y\n", State.READY, 0), ("n\n", State.DEAD, 1)])
def test_somebody_at_a_terminal_is_asked(
    given: Given, run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, state: State, code: int
):
    id = given.dead()
    monkeypatch.setattr("hawser.cli.bulk._can_be_asked", lambda: True)
    result = run("dlq", "replay", "--all", input=answer)
    assert "Replay 1 dead job, 100 a second?" in result.stderr
    assert (result.exit_code, given.job(id).state) == (code, state)


def test_a_job_whose_key_is_taken_is_skipped_and_told(given: Given, run: Run):
    dead = given.dead(key="k")
    given.ready(key="k")
    other = given.dead(queue="bulk")
    result = run("dlq", "replay", "--all", "--yes")
    assert (result.exit_code, result.stdout) == (1, "1 job replayed, 1 skipped\n")
    assert f"skipped {dead}: another job holds its key" in result.stderr
    assert given.job(other).state is State.READY
    one = run("dlq", "replay", dead)
    assert one.exit_code == 1
    assert "another job holds the key 'k'" in one.stderr


def test_tasks_that_ask_for_a_confirmation_are_left_out_without_one(given: Given, run: Run, shop: str):
    charge, email = given.dead("charge"), given.dead()
    result = run("dlq", "replay", "--all", "--yes", "--app", shop, "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert (said["replayed"], said["skipped"], said["skipped_jobs"][0]["id"]) == (1, 1, charge)
    assert (given.job(charge).state, given.job(email).state) == (State.DEAD, State.READY)
    assert run("dlq", "replay", "--all", "--yes", "--app", shop, "--confirm").exit_code == 0
    assert given.job(charge).state is State.READY


def test_a_job_keeps_the_wish_for_a_confirmation_where_its_app_is_not_known(given: Given, run: Run):
    id = given.dead("charge", confirm_replay=True)
    refused = run("dlq", "replay", id)
    assert refused.exit_code == 1
    assert "add --confirm" in refused.stderr
    assert run("dlq", "replay", "--all", "--yes").exit_code == 1
    assert given.job(id).state == "dead"
    assert run("dlq", "replay", id, "--confirm").exit_code == 0
    assert given.job(id).state == "ready"


def test_a_named_job_of_such_a_task_needs_the_confirmation_too(given: Given, run: Run, shop: str):
    id = given.dead("charge")
    result = run("dlq", "replay", id, "--app", shop)
    assert result.exit_code == 1
    assert "add --confirm" in result.stderr
    assert run("dlq", "replay", id, "--app", shop, "--confirm").exit_code == 0


def test_a_job_is_replayed_with_another_payload(given: Given, run: Run, shop: str):
    old = given.dead(payload={"to": "nobody"}, queue="mail", priority=7)
    result = run("dlq", "replay", old, "--payload", '{"to": "ann"}', "--app", shop, "--json")
    said = json.loads(result.stdout)
    new = given.job(said["id"])
    assert (said["parent_id"], new.parent_id, new.payload, new.queue, new.priority) == (old, old, {"to": "ann"}, "mail", 7)
    assert given.job(old).state is State.CANCELLED


def test_another_payload_is_checked_against_the_task(given: Given, run: Run, shop: str):
    id = given.dead(payload={"to": "nobody"})
    result = run("dlq", "replay", id, "--payload", '{"too": 1}', "--app", shop)
    assert result.exit_code == 1
    assert "error: payload.to: missing" in result.stderr
    assert given.job(id).state is State.DEAD


def test_another_payload_does_not_go_round_the_confirmation(given: Given, run: Run, shop: str):
    id = given.dead("charge")
    result = run("dlq", "replay", id, "--payload", "{}", "--app", shop)
    assert result.exit_code == 1
    assert "add --confirm" in result.stderr
    assert given.job(id).state is State.DEAD


def test_jobs_are_discarded_with_a_reason(given: Given, run: Run):
    id = given.dead()
    assert run("dlq", "discard", id, "--reason", "spam").stdout == f"{id}  discarded\n"
    assert (given.job(id).state, given.job(id).reason) == (State.CANCELLED, "spam")


def test_matching_jobs_are_discarded(given: Given, run: Run):
    given.dead(tags=["spam"])
    kept = given.dead()
    result = run("dlq", "discard", "--tag", "spam", "--reason", "spam", "--yes", "--json")
    assert json.loads(result.stdout)["discarded"] == 1
    assert given.job(kept).state is State.DEAD


def test_a_discard_needs_a_reason(given: Given, run: Run):
    id = given.dead()
    result = run("dlq", "discard", id)
    assert result.exit_code == 2
    assert "--reason" in result.stderr
    assert given.job(id).state is State.DEAD


def test_a_waiting_job_cannot_be_discarded(given: Given, run: Run):
    result = run("dlq", "discard", given.ready(), "--reason", "x")
    assert result.exit_code == 1
    assert "use cancel" in result.stderr


def test_matching_jobs_are_replayed_over_a_time(given: Given, run: Run):
    dead = [given.dead("resize") for _ in range(4)]
    result = run("dlq", "replay", "--task", "resize", "--spread", "40m", "--yes")
    assert (result.exit_code, result.stdout) == (0, "4 jobs replayed\n")
    times = [given.job(id).run_at for id in reversed(dead)]  # the newest first
    assert [(later - times[0]).total_seconds() for later in times] == [0, 600, 1200, 1800]


def test_a_spread_goes_with_a_filter(given: Given, run: Run):
    result = run("dlq", "replay", given.dead(), "--spread", "40m")
    assert result.exit_code == 2
    assert "--spread goes with a filter or --all" in result.stderr
