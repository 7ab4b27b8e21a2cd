"""`hawser queues` and `hawser tasks`."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from hawser.store import EVERY_QUEUE, Beat
from tests.cli.conftest import Run
from tests.cli.given import HOSTILE, Given


def test_queues_are_listed_in_figures(given: Given, run: Run):
    given.ready(queue="mail")
    given.dead(queue="bulk")
    head, bulk, mail = run("queues").stdout.splitlines()
    assert head.split()[:6] == ["QUEUE", "READY", "SCHEDULED", "RETRYING", "RUNNING", "DEAD"]
    assert bulk.split()[:6] == ["bulk", "0", "0", "0", "0", "1"]
    assert mail.split()[:6] == ["mail", "1", "0", "0", "0", "0"]


def test_queues_as_json_have_the_names_of_the_stats(given: Given, run: Run):
    given.ready(queue="mail")
    run("limits", "set", "--queue", "mail", "--max-depth", "50")
    run("queues", "pause", "mail", "--reason", HOSTILE)
    [queue] = json.loads(run("queues", "--json").stdout)["queues"]
    assert (queue["queue"], queue["ready"], queue["max_depth"], queue["paused"]) == ("mail", 1, 50, True)
    assert queue["pause"]["reason"] == HOSTILE
    assert queue["pause"]["until"] is None
    assert "[red]boo[/red]" in run("queues").stdout
    assert "\x1b" not in run("queues").stdout


def test_queues_are_listed_with_their_limits(given: Given, run: Run):
    given.ready(queue="mail")
    given.ready(queue="bulk")
    run("limits", "set", "--queue", "mail", "--running", "4", "--rate", "100/m", "--max-depth", "5000")
    bulk, mail = json.loads(run("queues", "--json").stdout)["queues"]
    assert [mail[name] for name in ("max_running", "rate", "max_depth")] == [4, "100/m", 5000]
    assert [bulk[name] for name in ("max_running", "rate", "max_depth")] == [None, None, None]
    assert "4 at once, 100/m, 5,000 waiting" in run("queues").stdout
    run("limits", "set", "--queue", "mail", "--rate", "9/s")
    assert "9/s" in run("queues").stdout
    assert "at once" not in run("queues").stdout


def test_queues_that_only_tasks_name_are_listed_with_their_app(given: Given, run: Run, shop: str):
    given.ready(queue="bulk")
    run("limits", "set", "--queue", "api", "--max-depth", "50")
    run("queues", "set", "web", "--concurrency", "2")
    assert [line.split()[0] for line in run("queues").stdout.splitlines()] == ["QUEUE", "api", "bulk", "web"]
    names = [line.split()[0] for line in run("queues", "--app", shop).stdout.splitlines()]
    assert names == ["QUEUE", "api", "bulk", "default", "mail", "web"]
    listed = json.loads(run("queues", "--app", shop, "--json").stdout)["queues"]
    assert {queue["queue"]: queue["ready"] for queue in listed} == {"api": 0, "bulk": 1, "default": 0, "mail": 0, "web": 0}


def test_a_queue_that_a_worker_serves_is_listed_before_its_first_job(given: Given, run: Run):
    given.ask(
        given.store.beat([Beat(worker="w1", host="vm", pid=1, version="1", queues=("served", EVERY_QUEUE), slots=1, running=0)])
    )
    assert [queue["queue"] for queue in json.loads(run("queues", "--json").stdout)["queues"]] == ["served"]


def test_no_queue_is_no_failure(run: Run):
    result = run("queues")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no queue holds a job; add --app APP to see those that its tasks name\n"
    assert json.loads(run("queues", "ls", "--json").stdout) == {"queues": []}


@pytest.mark.parametrize(("kind", "name"), [("queue", "mail"), ("task", "send_email")])
def test_a_pause_is_set_and_ended(given: Given, run: Run, kind: str, name: str):
    assert f"{kind} {name} is paused until it is resumed" in run(f"{kind}s", "pause", name).stdout
    assert name in run(f"{kind}s").stdout
    assert run(f"{kind}s", "resume", name).stdout == f"{kind} {name} goes on\n"
    assert run(f"{kind}s", "resume", name).stdout == f"{kind} {name} was not paused\n"
    assert json.loads(run(f"{kind}s", "resume", name, "--json").stdout) == {kind: name, "resumed": False}
    assert [record.action for record in given.audit()] == ["resume", "pause"]


def test_a_pause_ends_after_a_time(run: Run):
    said = json.loads(run("queues", "pause", "mail", "--for", "1h30m", "--json").stdout)
    until = datetime.fromisoformat(said["until"])
    assert abs(until - datetime.now(UTC) - timedelta(minutes=90)) < timedelta(seconds=30)
    [queue] = json.loads(run("queues", "--json").stdout)["queues"]
    assert datetime.fromisoformat(queue["pause"]["until"]) == until


def test_a_pause_ends_at_a_time(run: Run):
    assert "2100-01-01" in run("tasks", "pause", "t", "--until", "2100-01-01T12:00Z").stdout
    [task] = json.loads(run("tasks", "--json").stdout)["tasks"]
    assert task["pause"]["until"] == "2100-01-01T12:00:00Z"


@pytest.mark.parametrize(
    "args",
    [
        ("--until", "2001-01-01T00:00Z"),
        ("--until", "2100-01-01T00:00"),
        ("--until", "tomorrow"),
        ("--for", "0"),
        ("--for", "-5"),
        ("--for", "a while"),
        ("--for", "1h", "--until", "2100-01-01T00:00Z"),
    ],
)
def test_a_pause_with_a_wrong_end_is_bad_usage(given: Given, run: Run, args: tuple[str, ...]):
    assert run("queues", "pause", "mail", *args).exit_code == 2
    assert given.audit() == []


@pytest.mark.parametrize("name", ["", "a b", "[red]", "../x"])
def test_a_wrong_name_is_refused_by_its_field(run: Run, name: str):
    for kind in ("queue", "task"):
        for verb in ("pause", "resume"):
            result = run(f"{kind}s", verb, name)
            assert result.exit_code == 2
            assert result.stderr.startswith(f"error: {kind}: ")


def test_a_policy_is_set_piece_by_piece_and_taken_back(given: Given, run: Run):
    assert run("queues", "set", "mail", "--max-attempts", "3").stdout == "queue mail: 3 attempts\n"
    said = run("queues", "set", "mail", "--backoff", "exponential:10:600", "--concurrency", "4").stdout
    assert said == "queue mail: 3 attempts, exponential from 10 s to 10 min, 4 at once per process\n"
    assert "3 attempts" in run("queues").stdout
    [queue] = json.loads(run("queues", "--json").stdout)["queues"]
    assert queue["policy"] == {
        "max_attempts": 3,
        "backoff": {"kind": "exponential", "jitter": "full", "base": 10.0, "cap": 600.0},
        "concurrency": 4,
        "ageing": 600.0,
    }
    assert run("queues", "set", "mail", "--ageing", "2m").stdout.endswith("4 at once per process, ageing after 2 min\n")
    assert run("queues", "set", "mail", "--ageing", "none").stdout.endswith("4 at once per process, strict priority\n")
    run("queues", "set", "mail", "--max-attempts", "none", "--concurrency", "none", "--ageing", "10m")
    assert (
        run("queues", "set", "mail", "--backoff", "fixed:5", "--jitter", "none").stdout
        == "queue mail: every 5 s without jitter\n"
    )
    assert (
        run("queues", "set", "mail", "--backoff", "fixed:5", "--jitter", "equal").stdout
        == "queue mail: every 5 s with equal jitter\n"
    )
    assert run("queues", "set", "mail", "--backoff", "none").stdout == "queue mail: nothing is set\n"
    assert given.audit()[0].action == "set_policy"


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--max-attempts", "0"),
        ("--max-attempts", "many"),
        ("--concurrency", "-1"),
        ("--ageing", "soon"),
        ("--ageing", "0s"),
        ("--backoff", "30"),
        ("--backoff", "fixed"),
        ("--backoff", "fixed:-1"),
        ("--backoff", "exponential:nan:5"),
        ("--backoff", "linear:1"),
        ("--jitter", "none"),
        ("--backoff", "none", "--jitter", "none"),
    ],
)
def test_a_wrong_policy_is_bad_usage(given: Given, run: Run, args: tuple[str, ...]):
    assert run("queues", "set", "mail", *args).exit_code == 2
    assert given.audit() == []


def test_an_app_shows_its_tasks(run: Run, shop: str):
    run("tasks", "pause", "gone", "--reason", "old")
    assert [line.split()[:2] for line in run("tasks", "--app", shop).stdout.splitlines()] == [
        ["TASK", "QUEUE"],
        ["charge", "default"],
        ["gone", "not"],
        ["send_email", "mail"],
    ]
    tasks = {task["task"]: task for task in json.loads(run("tasks", "--app", shop, "--json").stdout)["tasks"]}
    assert (tasks["charge"]["confirm_replay"], tasks["send_email"]["queue"], tasks["gone"]["queue"]) == (True, "mail", None)


def test_without_an_app_no_task_is_known(run: Run):
    assert "add --app APP" in run("tasks").stderr


def test_a_pause_of_what_nobody_has_heard_of_is_doubted_and_allowed(given: Given, run: Run, shop: str):
    given.ready("resize", queue="images")
    result = run("queues", "pause", "imges")
    assert (result.exit_code, result.stderr) == (
        0,
        "no queue called imges is known here: did you mean 'images'? It is paused all the same.\n",
    )
    assert run("queues", "pause", "images").stderr == ""
    assert run("queues", "pause", "imges").stderr == "", "it is paused already"
    assert "is the name right?" in run("tasks", "pause", "send_email").stderr
    assert run("tasks", "pause", "resize").stderr == "", "there are jobs of it"
    assert run("tasks", "pause", "charge", "--app", shop).stderr == "", "the app has it"
    assert run("queues", "pause", "mail", "--app", shop).stderr == ""


def test_the_weight_of_a_group_is_set(given: Given, run: Run):
    said = run("queues", "weight", "mail", "acme", "3", "--reason", "a large customer")
    assert said.stdout == "group acme of queue mail is offered 3 places a turn\n"
    [weight] = given.ask(given.store.weights("mail"))
    assert (weight.queue, weight.group, weight.weight) == ("mail", "acme", 3)
    assert json.loads(run("queues", "weight", "mail", "acme", "1", "--json").stdout) == {
        "queue": "mail",
        "group": "acme",
        "weight": 1,
    }
    assert given.ask(given.store.weights("mail")) == []
    assert given.audit()[-1].reason == "a large customer"
