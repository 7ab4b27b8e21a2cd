"""`hawser enqueue`."""

import json
import sys

import pytest

from hawser.batch import new_batch
from hawser.value.ids import new_id
from tests.cli.conftest import Run
from tests.cli.given import Given


def test_a_job_is_enqueued_and_its_id_printed_alone(given: Given, run: Run, shop: str):
    result = run("enqueue", shop, "send_email", "--json", '{"to": "ann"}')
    assert result.exit_code == 0
    job = given.job(result.stdout.strip())
    assert (job.task, job.queue, job.payload) == ("send_email", "mail", {"to": "ann"})


def test_every_option_reaches_the_job(given: Given, run: Run, shop: str):
    options = "--queue bulk --priority 9 --delay 1h --key k --key-ttl forever --max-attempts 2 --timeout 5m --tag a --tag b"
    result = run("enqueue", shop, "send_email", "--json", '{"to": "ann"}', *options.split(), "--expires", "2h")
    job = given.job(result.stdout.strip())
    assert (job.queue, job.priority, job.key, job.key_ttl) == ("bulk", 9, "k", float("inf"))
    assert (job.max_attempts, job.timeout, job.tags) == (2, 300.0, ("a", "b"))
    assert (job.run_at - job.enqueued_at).total_seconds() == 3600
    assert job.expires_at is not None
    assert (job.expires_at - job.enqueued_at).total_seconds() == 7200


def test_a_job_is_due_at_a_time(given: Given, run: Run, shop: str):
    result = run("enqueue", shop, "charge", "--run-at", "2100-01-01T12:00+02:00")
    assert given.job(result.stdout.strip()).run_at.isoformat() == "2100-01-01T10:00:00+00:00"


def test_arguments_come_from_stdin(given: Given, run: Run, shop: str):
    result = run("enqueue", shop, "send_email", "--json", "-", input='{"to": "ané"}')
    assert given.job(result.stdout.strip()).payload == {"to": "ané"}


def test_a_job_that_is_there_already_is_told(run: Run, shop: str):
    first = run("enqueue", shop, "charge", "--key", "k", "--output", "json")
    second = run("enqueue", shop, "charge", "--key", "k", "--output", "json")
    assert json.loads(first.stdout)["created"] is True
    assert json.loads(second.stdout) == {"id": json.loads(first.stdout)["id"], "created": False, "replaced": False}
    assert "holds the key 'k'" in run("enqueue", shop, "charge", "--key", "k").stderr


def test_a_job_that_is_sent_again_by_its_id_is_told(run: Run, shop: str):
    id = new_id()
    assert run("enqueue", shop, "charge", "--id", id).stdout.strip() == id
    again = run("enqueue", shop, "charge", "--id", id)
    assert (again.exit_code, again.stdout.strip()) == (0, id)
    assert "enqueued before, with the same id" in again.stderr


def test_a_job_waits_for_others_and_counts_in_a_batch(given: Given, run: Run, shop: str):
    batch = new_batch(name="import-42")
    given.ask(given.store.open_batch(batch))
    first = run("enqueue", shop, "charge").stdout.strip()
    second = run("enqueue", shop, "charge", "--batch", batch.id).stdout.strip()
    third = run("enqueue", shop, "charge", "--after", first, "--after", second).stdout.strip()
    assert (given.job(second).batch, given.job(third).held) == (batch.id, True)
    waits = given.ask(given.store.waits(third))
    assert waits is not None
    assert {each.id for each in waits.upstream} == {first, second}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"to": ann}', "expecting value at character 8, before 'ann}'"),
        ('{"to": "ann"', "at character 13, its end"),
        ("", "at character 1, its end"),
        ('{\n"to": "ann",\n}', "at line 2, column 12" if sys.version_info >= (3, 13) else "at line 3, column 1"),
        ('{"to": NaN}', "not JSON"),
        ('["ann"]', "it is a list; the arguments are one JSON object"),
        ("null", "it is null"),
        ("7", "it is a number"),
        ('{"to":' * 5000, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_payload_names_the_place(given: Given, run: Run, shop: str, text: str, said: str):
    result = run("enqueue", shop, "send_email", "--json", text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "--json" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("send_emial",), "task: no task is called 'send_emial'; did you mean 'send_email'?"),
        (("zzz",), "the app has charge, send_email"),
        (("send_email",), "payload.to: missing"),
        (("send_email", "--json", '{"to": 5}'), "payload.to: Expected `str`, got `int`"),
        (("charge", "--json", '{"oder": 5}'), "did you mean 'order'?"),
        (("charge", "--priority", "10"), "priority: 10 is not"),
        (("charge", "--max-attempts", "0"), "max_attempts: 0 is not"),
        (("charge", "--timeout", "0"), "timeout: 0.0 is not"),
        (("charge", "--queue", "a b"), "queue: 'a b' is not a name"),
        (("charge", "--key-ttl", "5m"), "key_ttl: given without a key"),
        (("charge", "--delay", "5", "--run-at", "2100-01-01T00:00Z"), "run_at: given together with delay"),
        (("charge", "--tag", ""), "tags: a text of 0 characters"),
    ],
)
def test_a_refused_job_names_the_field(given: Given, run: Run, shop: str, args: tuple[str, ...], said: str):
    result = run("enqueue", shop, *args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ("--delay", "soon"),
        ("--delay", "-1"),
        ("--delay", "100000d"),
        ("--run-at", "2100-01-01T00:00"),
        ("--run-at", "now"),
        ("--key", "k", "--key-ttl", "for ever"),
        ("--priority", "high"),
    ],
)
def test_a_value_that_cannot_be_read_is_bad_usage(run: Run, shop: str, args: tuple[str, ...]):
    result = run("enqueue", shop, "charge", *args)
    assert result.exit_code == 2
    assert args[-2] in result.stderr


def test_a_full_queue_is_an_error(run: Run, shop: str):
    run("limits", "set", "--queue", "default", "--max-depth", "0")
    result = run("enqueue", shop, "charge")
    assert result.exit_code == 1
    assert "error: queue 'default' holds 0 waiting jobs of at most 0" in result.stderr


def test_another_store_takes_the_place_of_the_apps_own(given: Given, run: Run, shop: str):
    result = run("enqueue", shop, "charge", "--store", "sqlite:///other.db")
    assert result.exit_code == 0
    assert json.loads(run("jobs", "--json").stdout)["jobs"] == []
    [job] = json.loads(run("jobs", "--store", "sqlite:///other.db", "--json").stdout)["jobs"]
    assert job["id"] == result.stdout.strip()


def test_a_debounced_job_gets_the_newest_payload(run: Run, shop: str):
    def call(to: str) -> dict[str, object]:
        given = ("--key", "k", "--debounce", "1m", "--at-most", "5m", "--output", "json")
        answer = run("enqueue", shop, "send_email", "--json", json.dumps({"to": to}), *given)
        told: dict[str, object] = json.loads(answer.stdout)
        return told

    first, second = call("ann"), call("bob")
    assert (first["created"], second) == (True, {"id": first["id"], "created": False, "replaced": True})


def test_a_job_is_enqueued_with_its_group(given: Given, run: Run, shop: str):
    result = run("enqueue", shop, "charge", "--group", "acme")
    assert given.job(result.stdout.strip()).group == "acme"
    assert json.loads(run("jobs", "show", result.stdout.strip(), "--json").stdout)["group"] == "acme"
