"""`hawser jobs`."""

import json

import pytest
from msgspec.structs import replace

from hawser.job import FOREVER, NewJob, State
from hawser.store import Beat
from hawser.value.ids import new_id
from tests.cli.conftest import Run
from tests.cli.given import HOSTILE, Given


def test_jobs_without_a_subcommand_lists_them_newest_first(given: Given, run: Run):
    first, second = given.ready(), given.ready("resize", queue="bulk")
    result = run("jobs")
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["ID", "TASK", "QUEUE", "STATE", "ATTEMPT", "WHEN", "NOTE"]
    assert [row.split()[:4] for row in rows] == [
        [second, "resize", "bulk", "ready"],
        [first, "send_email", "default", "ready"],
    ]
    assert result.exit_code == 0


def test_options_go_to_the_list_also_without_a_subcommand(given: Given, run: Run):
    given.ready()
    dead = given.dead(queue="mail")
    assert [job["id"] for job in json.loads(run("jobs", "--state", "dead", "--json").stdout)["jobs"]] == [dead]


def test_the_list_says_in_which_way_a_job_is_ready(given: Given, run: Run):
    given.failed(queue="q1")
    given.ready(delay=3600)
    given.running(queue="q2")
    given.done(queue="q3")
    rows = [line.split() for line in run("jobs", "ls").stdout.splitlines()[1:]]
    assert [row[3] for row in rows] == ["done", "running", "scheduled", "retrying"]
    assert "ValueError: no" in run("jobs", "ls").stdout


def test_a_held_job_has_no_time_at_which_it_is_due(given: Given, run: Run):
    held = given.ready(waits_for=(given.ready(),))
    [line] = [line for line in run("jobs", "ls").stdout.splitlines() if held in line]
    assert line.split()[3:] == ["held", "0/5"]
    assert "\ndue" not in run("jobs", "show", held).stdout


@pytest.mark.parametrize(
    ("option", "value"),
    [("--queue", "mail"), ("--task", "resize"), ("--tag", "vip"), ("--key", "k1"), ("--state", "dead"), ("--since", "1h")],
)
def test_each_filter_narrows_the_list(given: Given, run: Run, option: str, value: str):
    wanted = given.dead("resize", queue="mail", tags=["vip"], key="k1")
    given.ready()
    jobs = json.loads(run("jobs", "ls", option, value, "--json").stdout)["jobs"]
    assert wanted in [job["id"] for job in jobs]
    assert len(jobs) == (2 if option == "--since" else 1)


def test_a_time_that_is_none_is_answered_with_the_ways_to_write_one(run: Run):
    result = run("jobs", "--since", "yesterday")
    assert result.exit_code == 2
    assert "'yesterday' is not a time; write it as 2026-08-01T09:00+02:00" in result.stderr
    assert "or how long ago it was, for example 1h or 2d" in result.stderr


def test_the_children_of_a_job_are_found_by_its_id(given: Given, run: Run):
    parent = given.ready()
    child = given.ready(parent_id=parent)
    assert run("jobs", "--parent", parent).stdout.splitlines()[1].startswith(child)


def test_a_list_is_paged(given: Given, run: Run):
    ids = [given.ready() for _ in range(5)][::-1]
    page = json.loads(run("jobs", "ls", "--limit", "2", "--json").stdout)
    assert [job["id"] for job in page["jobs"]] == ids[:2]
    said = run("jobs", "ls", "--limit", "2")
    assert f"--after {page['next']}" in said.stderr
    rest = json.loads(run("jobs", "ls", "--after", page["next"], "--json").stdout)
    assert ([job["id"] for job in rest["jobs"]], rest["next"]) == (ids[2:], None)


def test_a_list_is_twenty_jobs_long_unless_told_otherwise(given: Given, run: Run):
    given.put(*(NewJob(task="t", body=b"{}") for _ in range(25)))
    assert len(run("jobs").stdout.splitlines()) == 1 + 20
    assert len(run("jobs", "--limit", "1000").stdout.splitlines()) == 1 + 25


@pytest.mark.parametrize("limit", ["0", "1001", "many"])
def test_a_limit_out_of_bounds_is_bad_usage(run: Run, limit: str):
    result = run("jobs", "--limit", limit)
    assert result.exit_code == 2
    assert "--limit" in result.stderr


def test_an_empty_list_says_so_beside_the_output(run: Run):
    result = run("jobs")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no jobs match\n")
    assert json.loads(run("jobs", "--json").stdout) == {"jobs": [], "next": None, "searched": 0, "left_out": []}


def test_a_job_as_json_has_the_names_of_the_struct_and_real_values(given: Given, run: Run):
    id = given.done(payload={"to": "é", "n": 2**63}, result=[1, None], queue="mail", key="k", key_ttl=FOREVER, tags=["a"])
    job = json.loads(run("jobs", "show", id, "--json").stdout)
    assert job["payload"] == {"to": "é", "n": 2**63}
    assert job["result"] == [1, None]
    assert job["progress"] is None
    assert (job["state"], job["queue"], job["key_ttl"], job["tags"], job["timeout"]) == ("done", "mail", "forever", ["a"], 300.0)
    assert job["enqueued_at"].endswith("Z")
    assert [attempt["outcome"] for attempt in job["attempts"]] == ["done"]
    assert "body" not in job


def test_a_listed_job_as_json_has_its_last_error_and_no_tracebacks(given: Given, run: Run):
    given.dead(error="OSError: gone")
    [job] = json.loads(run("jobs", "--json").stdout)["jobs"]
    assert job["error"] == "OSError: gone"
    assert "attempts" not in job


def test_a_job_is_shown_in_full(given: Given, run: Run):
    id = given.dead(payload={"to": "ann"}, key="welcome:1", tags=["vip", "eu"], worker="host:1")
    text = run("jobs", "show", id).stdout
    for part in (id, "send_email", "dead", "1 of 1", "welcome:1 (held while it is live)", "vip, eu", '{"to": "ann"}', "host:1"):
        assert part in text
    assert "traceback of attempt 1\n  Traceback\n    ValueError: no such user" in text


def test_a_large_payload_is_shown_in_part(given: Given, run: Run):
    id = given.ready(payload={"rows": list(range(500))})
    text = run("jobs", "show", id).stdout
    assert "more lines; --json has them all" in text
    assert len(text.splitlines()) < 100


def test_a_waiting_job_says_what_it_waits_for(given: Given, run: Run):
    id = given.ready(queue="mail", delay=7200)
    run("queues", "pause", "mail", "--reason", "smtp is down")
    run("tasks", "pause", "send_email")
    text = run("jobs", "show", id).stdout
    assert "queue mail is paused by cli:" in text
    assert "smtp is down" in text
    assert "task send_email is paused" in text
    assert "not due before" in text
    why = json.loads(run("jobs", "show", id, "--json").stdout)["why"]
    assert why.startswith("queue mail is paused by cli:")


def test_a_job_that_nobody_serves_says_so(given: Given, run: Run):
    id, running, dead = given.ready(queue="mail"), given.running(), given.dead(queue="other")
    beat = Beat(worker="w", host="h", pid=1, version="1", queues=("bulk",), slots=2, running=0)
    given.beat(beat)
    assert "waits     no living worker serves queue mail\n" in run("jobs", "show", id).stdout
    given.beat(replace(beat, queues=("bulk", "mail")))
    assert "waits     due: a worker takes it at its next look\n" in run("jobs", "show", id).stdout
    for other in (running, dead):
        assert "waits" not in run("jobs", "show", other).stdout
        assert json.loads(run("jobs", "show", other, "--json").stdout)["why"] is None


def test_an_id_in_capitals_is_found(given: Given, run: Run):
    id = given.ready()
    assert run("jobs", "show", id.upper()).exit_code == 0


def test_a_missing_job_is_an_error_in_one_line(run: Run):
    result = run("jobs", "show", new_id())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: no job '")
    assert result.stderr.count("\n") == 1


def test_waiting_jobs_are_cancelled_and_running_ones_asked_to_stop(given: Given, run: Run):
    running = given.running()
    waiting = given.ready(queue="mail")
    result = run("jobs", "cancel", waiting, running, "--reason", "a mistake")
    assert result.stdout.splitlines() == [
        f"{waiting}  cancelled",
        f"{running}  running; its worker was asked to stop it",
    ]
    assert (given.job(waiting).state, given.job(waiting).reason) == (State.CANCELLED, "a mistake")
    assert given.job(running).cancel_asked
    assert given.audit()[0].by.startswith("cli")


@pytest.mark.parametrize(
    "chosen",
    [
        ("--queue", "mail"),
        ("--task", "greet"),
        ("--tag", "spam"),
        ("--key", "k"),
        ("--since", "1h", "--task", "greet"),
        ("--all",),
    ],
)
def test_waiting_jobs_that_match_are_cancelled(given: Given, run: Run, chosen: tuple[str, ...]):
    others = [given.running("greet", queue="mail"), given.dead("greet", queue="mail")]
    id = given.ready("greet", queue="mail", tags=["spam"], key="k", delay=600)
    kept = given.ready()
    result = run("jobs", "cancel", *chosen, "--reason", "not wanted", "--yes", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {"cancelled": 2 if chosen == ("--all",) else 1, "skipped": 0, "skipped_jobs": []}
    assert (given.job(id).state, given.job(id).reason) == (State.CANCELLED, "not wanted")
    assert given.job(kept).state is (State.CANCELLED if chosen == ("--all",) else State.READY)
    assert [given.job(other).state for other in others] == [State.RUNNING, State.DEAD]
    assert given.audit()[0].action == "cancel"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "which jobs? give their ids, or choose with --key, --queue, --since, --tag, --task, --until or --all"),
        (("x", "--all"), "not both"),
        (("--all",), "add --yes"),
        (("--all", "--yes", "--rate", "0"), "--rate"),
    ],
)
def test_an_unclear_cancel_is_bad_usage_and_changes_nothing(given: Given, run: Run, args: tuple[str, ...], said: str):
    id = given.ready()
    result = run("jobs", "cancel", *args)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert given.job(id).state is State.READY


@pytest.mark.parametrize(("answer", "state", "code"), [("y\n", State.CANCELLED, 0), ("n\n", State.READY, 1)])
def test_who_cancels_many_is_asked(given: Given, run: Run, monkeypatch, answer: str, state: State, code: int):
    id = given.ready()
    monkeypatch.setattr("hawser.cli.bulk._can_be_asked", lambda: True)
    result = run("jobs", "cancel", "--task", "send_email", input=answer)
    assert "Cancel 1 waiting job?" in result.stderr
    assert (result.exit_code, given.job(id).state) == (code, state)


def test_a_refusal_does_not_keep_the_others_from_being_cancelled(given: Given, run: Run):
    done, waiting = given.done(), given.ready()
    result = run("jobs", "cancel", done, "nonsense", waiting, "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)["jobs"]
    assert [answer["id"] for answer in said] == [done, "nonsense", waiting]
    assert "it is done" in said[0]["error"]
    assert "no job 'nonsense'" in said[1]["error"]
    assert said[2]["acted"] == "done"
    assert given.job(waiting).state is State.CANCELLED


def test_dead_and_cancelled_jobs_run_again(given: Given, run: Run):
    dead = given.dead()
    cancelled = given.ready()
    run("jobs", "cancel", cancelled)
    result = run("jobs", "retry", dead, cancelled, "--reason", "fixed")
    assert result.exit_code == 0
    assert given.job(dead).state is given.job(cancelled).state is State.READY


def test_a_waiting_job_cannot_be_retried(given: Given, run: Run):
    result = run("jobs", "retry", given.ready())
    assert result.exit_code == 1
    assert "it is ready; only a dead or cancelled job can be requeued" in result.stderr


def test_waiting_jobs_are_listed_by_what_they_wait_for(given: Given, run: Run):
    ready, later, again = given.ready(queue="a"), given.ready(queue="b", delay=60), given.failed(queue="c")

    def listed(state: str) -> set[str]:
        return {job["id"] for job in json.loads(run("jobs", "--state", state, "--json").stdout)["jobs"]}

    assert listed("ready") == {ready, later, again}
    assert listed("scheduled") == {later}
    assert listed("retrying") == {again}


def test_a_task_that_asks_for_it_is_retried_only_when_confirmed(given: Given, run: Run, shop: str):
    id = given.dead("charge")
    refused = run("jobs", "retry", id, "--app", shop)
    assert refused.exit_code == 1
    assert "then add --confirm" in refused.stderr
    assert given.job(id).state is State.DEAD
    assert run("jobs", "retry", id, "--app", shop, "--confirm").exit_code == 0
    assert given.job(id).state is State.READY


@pytest.mark.parametrize("command", ["cancel", "retry", "show", "change", "dead-letter"])
def test_a_command_on_jobs_wants_an_id(run: Run, command: str):
    assert run("jobs", command).exit_code == 2


def test_why_says_what_keeps_a_job_from_running_and_when_nothing_does(given: Given, run: Run):
    id = given.ready(queue="mail")
    run("queues", "pause", "mail", "--reason", "smtp is down")
    lines = run("jobs", "why", id).stdout.splitlines()
    assert "queue mail is paused by cli:" in lines[0]
    assert len(json.loads(run("jobs", "why", id, "--json").stdout)["why"]) == len(lines)
    dead = given.dead()
    assert run("jobs", "why", dead).stdout == "nothing keeps it from running: it is dead\n"
    assert run("jobs", "why", "01900000-0000-7000-8000-000000000000").exit_code == 1


def test_hostile_text_is_shown_harmlessly(given: Given, run: Run):
    id = given.dead(payload={HOSTILE: HOSTILE}, error=HOSTILE, worker=HOSTILE, key=HOSTILE, tags=["[bold]\x1b]0;t\x07"])
    for command in (("jobs",), ("jobs", "show", id), ("dlq",), ("jobs", "--json"), ("jobs", "show", id, "--json")):
        text = run(*command).stdout
        assert all(c.isprintable() or c == "\n" for c in text), command
        assert "[red]boo[/red]" in text
        assert ":skull:" in text
    assert len(run("jobs").stdout.splitlines()) == 2
    job = json.loads(run("jobs", "show", id, "--json").stdout)
    assert (job["payload"], job["key"], job["attempts"][0]["error"]) == ({HOSTILE: HOSTILE}, HOSTILE, HOSTILE)


def test_a_payload_that_is_no_json_is_shown_as_a_text(given: Given, run: Run):
    job = NewJob(task="t", body=b"not \xff json")
    given.put(job)
    assert json.loads(run("jobs", "show", job.id, "--json").stdout)["payload"] == "not \ufffd json"
    assert "not \ufffd json" in run("jobs", "show", job.id).stdout


def test_a_reason_must_be_a_text_of_bounded_size(given: Given, run: Run):
    id = given.ready()
    for reason in ("", " ", "x" * 501, "a\0b"):
        assert run("jobs", "cancel", id, "--reason", reason).exit_code == 2
    assert given.job(id).state is State.READY


def test_change_gives_a_waiting_job_another_place(given: Given, run: Run):
    one, two = given.ready(delay=60), given.failed(queue="mail")
    result = run("jobs", "change", one, two, "--queue", "bulk", "--priority", "9", "--now", "--reason", "urgent")
    assert result.stdout == f"{one}  changed\n{two}  changed\n"
    assert [(given.job(id).queue, given.job(id).priority) for id in (one, two)] == [("bulk", 9)] * 2
    assert (given.job(one).run_at - given.job(one).enqueued_at).total_seconds() < 60
    assert (given.audit()[0].action, given.audit()[0].reason) == ("change", "urgent")
    run("jobs", "change", one, "--run-at", "2031-08-01T09:00+02:00")
    assert given.job(one).run_at.isoformat() == "2031-08-01T07:00:00+00:00"
    changed = json.loads(run("jobs", "change", one, "--delay", "1h", "--json").stdout)
    assert changed == {"jobs": [{"id": one, "acted": "done"}]}


def test_change_refuses_what_does_not_wait(given: Given, run: Run):
    done, ready = given.done(), given.ready()
    result = run("jobs", "change", done, ready, "--priority", "1")
    assert result.exit_code == 1
    assert f"cannot change job {done}: it is done; only a waiting job can be changed" in result.stderr
    assert given.job(ready).priority == 1


@pytest.mark.parametrize(
    "options",
    [(), ("--priority", "10"), ("--now", "--delay", "5"), ("--now", "--run-at", "2031-08-01T09:00Z"), ("--run-at", "noon")],
    ids=" ".join,
)
def test_change_wants_something_that_can_be_changed(given: Given, run: Run, options: tuple[str, ...]):
    id = given.ready()
    assert run("jobs", "change", id, *options).exit_code == 2
    assert given.audit() == []


def test_dead_letter_ends_jobs_that_are_tried_again_and_again(given: Given, run: Run):
    poison, done = given.failed(), given.done()
    result = run("jobs", "dead-letter", poison, done, "--reason", "poison")
    assert (result.stdout, result.exit_code) == (f"{poison}  dead\n", 1)
    assert (given.job(poison).state, given.job(poison).reason) == (State.DEAD, "poison")
    assert poison in run("dlq").stdout


def test_workers_reclaim_takes_back_what_a_dead_worker_had(given: Given, run: Run):
    id = given.running(worker="w7")
    assert "no run of w8 is under a lease" in run("workers", "reclaim", "w8").stderr
    assert run("workers", "reclaim", "w7", "--reason", "no power").stdout == "1 run of w7 taken back\n"
    assert (given.job(id).state, given.job(id).crashes) == (State.READY, 1)
    assert (given.audit()[0].target, given.audit()[0].reason) == ("worker:w7", "no power")
    assert json.loads(run("workers", "reclaim", "w7", "--json").stdout) == {"worker": "w7", "reclaimed": 0}


def test_workers_reclaim_asks_for_a_worker_that_seems_to_live(given: Given, run: Run):
    id = given.running(worker="w7")
    given.beat(Beat(worker="w7", host="h", pid=1, version="1", queues=("mail",), slots=4, running=2))
    refused = run("workers", "reclaim", "w7")
    assert refused.exit_code == 2
    assert "gave a sign of life" in refused.stderr
    assert given.job(id).state is State.RUNNING
    assert run("workers", "reclaim", "w7", "--yes").exit_code == 0
    assert given.job(id).state is State.READY
