"""`hawser batches`."""

from __future__ import annotations

import json

import pytest

from hawser.batch import Batch, NewBatch, new_batch
from hawser.job import new_job
from tests.cli.conftest import Run
from tests.cli.given import HOSTILE, Given


def opened(given: Given, *, name: str = "import-42", members: int = 2, closed: bool = False) -> NewBatch:
    """A batch with `then`, in the given store."""
    batch = new_batch(name=name, then=new_job(task="report", body=b"{}"))
    given.ask(given.store.open_batch(batch))
    given.put(*(new_job(task="load", body=b"{}", batch=batch.id) for _ in range(members)))
    if closed:
        given.ask(given.store.close_batch(batch.id))
    return batch


def found(given: Given, id: str) -> Batch:
    batch = given.ask(given.store.batch(id))
    assert batch is not None
    return batch


def test_batches_are_listed_by_state(given: Given, run: Run):
    one, two = opened(given), opened(given, name="export", closed=True)
    listed = json.loads(run("batches", "--json").stdout)
    assert [(each["id"], each["name"], each["state"], each["total"]) for each in listed["batches"]] == [
        (two.id, "export", "running", 2),
        (one.id, "import-42", "open", 2),
    ]
    said = run("batches", "--state", "open").stdout
    assert "import-42" in said
    assert "0 of 2" in said
    assert "export" not in said
    assert run("batches", "--state", "dead").stderr == "no batches match\n"
    assert run("batches", "--state", "late").exit_code == 2


def test_pages_of_batches_visit_each_once(given: Given, run: Run):
    ids = [opened(given, members=0).id for _ in range(5)]
    seen: list[str] = []
    after: tuple[str, ...] = ()
    while True:
        page = json.loads(run("batches", "ls", "--limit", "2", "--json", *after).stdout)
        seen += [each["id"] for each in page["batches"]]
        if page["next"] is None:
            break
        after = ("--after", page["next"])
    assert seen == ids[::-1]
    assert "there are more: add --after " in run("batches", "--limit", "2").stderr


def test_one_batch_shows_its_counts_and_what_it_releases(given: Given, run: Run):
    batch = opened(given)
    assert batch.then is not None
    shown = json.loads(run("batches", "show", batch.id.upper(), "--json").stdout)
    assert (shown["waiting"], shown["done"], shown["closed"], shown["then"]) == (2, 0, False, batch.then.id)
    said = run("batches", "show", batch.id).stdout
    assert f"{batch.then.id} (report, held)" in said
    assert f"its producer has not closed it; hawser batches close {batch.id}" in said


def test_a_batch_is_closed_by_hand_and_ends(given: Given, run: Run):
    batch = opened(given, members=0)
    said = run("batches", "close", batch.id, "--reason", "the producer died")
    assert said.stdout == "batch import-42 is closed: it has ended, and is done\n"
    assert found(given, batch.id).ended_at is not None
    [record] = given.audit()
    assert (record.action, record.target, record.reason) == ("close_batch", f"batch:{batch.id}", "the producer died")
    again = run("batches", "close", batch.id)
    assert again.exit_code == 1
    assert "closed already" in again.stderr


def test_a_batch_is_cancelled_with_its_jobs(given: Given, run: Run):
    batch = opened(given)
    said = run("batches", "cancel", batch.id, "--reason", "wrong file", "--json")
    told = json.loads(said.stdout)
    assert (told["state"], told["cancelled"], told["reason"]) == ("cancelled", 2, "wrong file")
    assert found(given, batch.id).cancelled == 2
    again = run("batches", "cancel", batch.id)
    assert again.exit_code == 1
    assert "it has ended, and is cancelled" in again.stderr
    assert "cancel" in run("batches", "show", batch.id).stdout


@pytest.mark.parametrize("command", ["show", "close", "cancel"])
@pytest.mark.parametrize("id", ["nobody", "0190a000-0000-7000-8000-00000000000b"])
def test_an_unknown_batch_is_one_line(run: Run, command: str, id: str):
    said = run("batches", command, id)
    assert said.exit_code == 1
    assert said.stderr.startswith("error: no batch")


def test_a_hostile_name_does_no_harm(given: Given, run: Run):
    batch = opened(given, name=HOSTILE.replace("\x00", ""))
    for line in (("batches",), ("batches", "show", batch.id), ("batches", "--json"), ("batches", "close", batch.id)):
        said = run(*line)
        assert said.exit_code == 0
        assert not {"\x1b", "\x9b", "\u202e", "\x07"} & set(said.output)


def test_why_names_an_open_batch_and_the_command(given: Given, run: Run):
    batch = opened(given)
    assert batch.then is not None
    said = run("jobs", "why", batch.then.id).stdout
    assert said == (
        f"batch import-42 is still open: its producer has not closed it; if it is gone: hawser batches close {batch.id}\n"
    )


def test_jobs_of_a_batch_are_listed(given: Given, run: Run):
    batch = opened(given)
    given.ready()
    listed = json.loads(run("jobs", "--batch", batch.id, "--json").stdout)["jobs"]
    assert [(job["task"], job["batch"]) for job in listed] == [("load", batch.id)] * 2
    assert f"batch     {batch.id}" in run("jobs", "show", listed[0]["id"]).stdout
