"""`hawser lab flows` notices what it is there for: its judgement, with forged counts, jobs and lines; and a small run."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hawser.batch import Batch, new_batch
from hawser.job import Job, State, new_job
from hawser.lab.flow_judge import Flow, FlowRuns, judge_flow, judge_links, lags, read_runs
from tests.lab.test_experiments import lab

WORDS = ("then", "on_success", "on_dead")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def job(id: str, state: State, **fields: Any) -> Job:
    common = {"priority": 4, "max_attempts": 5, "timeout": 30.0, "lease": 1, "run_at": AT, "enqueued_at": AT}
    return Job(id=id, task="follow", queue="default", body=b"{}", state=state, **{"attempt": 1, **common, **fields})


class Played:
    """A batch of three jobs, one of which died, and all as it should be."""

    def __init__(self, *, replayed: bool = False) -> None:
        self.replayed = replayed
        self.flow = Flow(new_batch(name="flow", **{word: new_job(task="follow", body=b"{}") for word in WORDS}), 3, dies=1)
        self.ids = {word: self.flow.batch.follow_ups[word].id for word in WORDS}
        counts: dict[str, Any] = {"total": 3, "done": 3 if replayed else 2, "dead": 0 if replayed else 1}
        self.batch = Batch(id=self.flow.batch.id, name="flow", created_at=AT, closed=True, **counts)
        self.members = Counter({State.DONE: 3} if replayed else {State.DONE: 2, State.DEAD: 1})
        self.jobs = {self.ids[word]: job(self.ids[word], state) for word, state in self.flow.releases(replayed).items()}
        released = WORDS if replayed else ("then", "on_dead")
        self.lines = [f"follow {self.ids[word]} 0 1 1" for word in released]

    def wrong(self) -> Counter[str]:
        seen = read_runs("\n".join(self.lines))
        return judge_flow(self.flow, self.batch, self.members, self.jobs, seen, replayed=self.replayed)

    def change(self, word: str, state: State, **fields: Any) -> None:
        self.jobs[self.ids[word]] = job(self.ids[word], state, **fields)


@pytest.mark.parametrize("replayed", [False, True])
def test_what_is_right_is_not_found_fault_with(replayed: bool):
    assert not Played(replayed=replayed).wrong()


def counts_off(found: Played) -> None:
    found.members[State.DONE] -= 1


def a_count_that_the_jobs_do_not_bear_out(found: Played) -> None:
    found.members = Counter({State.DONE: 3})


def never_ended(found: Played) -> None:
    found.batch = Batch(id=found.batch.id, name="flow", created_at=AT, total=3, done=2, dead=1)


def still_held(found: Played) -> None:
    found.change("then", State.READY)


def released_though_one_is_dead(found: Played) -> None:
    found.lines.append(f"follow {found.ids['on_success']} 0 1 1")


def released_twice(found: Played) -> None:
    found.change("then", State.DONE, attempt=2)


def released_while_one_runs(found: Played) -> None:
    found.lines[0] = f"follow {found.ids['then']} 1 1 1"


def released_while_open(found: Played) -> None:
    found.lines[0] = f"follow {found.ids['then']} 0 0 1"


def released_before_a_death(found: Played) -> None:
    found.lines[1] = f"follow {found.ids['on_dead']} 2 1 0"


@pytest.mark.parametrize(
    ("forge", "fault"),
    [
        (counts_off, "counts_off"),
        (a_count_that_the_jobs_do_not_bear_out, "counts_off"),
        (never_ended, "ended_wrongly"),
        (still_held, "not_released"),
        (released_though_one_is_dead, "released_wrongly"),
        (released_twice, "released_twice"),
        (released_while_one_runs, "released_early"),
        (released_while_open, "released_early"),
        (released_before_a_death, "released_early"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_what_is_wrong_is_named(forge: Any, fault: str):
    found = Played()
    forge(found)
    assert found.wrong() == {fault: 1}


def test_a_run_that_was_cut_off_by_a_kill_is_no_second_release():
    found = Played()
    found.change("then", State.DONE, attempt=2, crashes=1)
    found.lines.append(found.lines[0])
    assert not found.wrong()


def test_a_batch_that_is_left_open_releases_nothing():
    found = Played()
    found.flow = found.flow._replace(closed=False, dies=0)
    found.batch = Batch(id=found.batch.id, name="flow", created_at=AT, total=3, done=3)
    found.members, found.lines = Counter({State.DONE: 3}), []
    for word in WORDS:
        found.change(word, State.READY, attempt=0)
    assert not found.wrong()
    found.change("then", State.DONE)
    assert found.wrong() == {"released_wrongly": 1}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("start a\nend a\nstart b\nend b", {}),
        ("start a\nend a\nstart a\nstart b\nend b\nend a", {}),
        ("start a\nstart b\nend a\nend b", {"started_early": 1}),
        ("start b\nend b\nstart a\nend a", {"started_early": 1}),
        ("start a\nend a", {"not_done": 1}),
        ("start a\nend a\nstart b\nend b\nfol", {}),
    ],
)
def test_the_order_of_jobs_is_judged_by_the_lines(text: str, fault: dict[str, int]):
    jobs = {id: job(id, State.DONE) for id in ("a", "b")}
    assert judge_links([("a", ()), ("b", ("a",))], jobs, read_runs(text)) == fault


def test_a_job_that_waits_for_ever_is_not_done():
    jobs = {"a": job("a", State.DONE), "b": job("b", State.READY)}
    assert judge_links([("b", ("a",))], jobs, FlowRuns({}, {"b": 1}, {"a": 0, "b": 2})) == {"not_done": 1}


def test_the_wait_is_counted_from_the_last_end_of_those_that_ran_at_once():
    found = Played()
    last = {found.batch.id: AT.timestamp() - 0.25}
    assert lags([found.flow], found.jobs, last) == [0.25]
    ended = last[found.batch.id]
    assert lags([found.flow], found.jobs, last, [(ended - 9, ended - 1), (ended + 1, ended + 9)]) == [0.25]
    assert lags([found.flow], found.jobs, last, [(ended - 1, ended + 1)]) == [], "the server was away when the last one ended"
    found.change("then", State.DONE, attempt=2, crashes=1)
    assert lags([found.flow], found.jobs, last) == []


@pytest.mark.parametrize("store", ["postgres", "redis"])
def test_flows_hold_under_kills(store: str, tmp_path: Path):
    """The checks of this repository play it on SQLite, with all experiments."""
    small = [word for pair in ("batches=3", "kills=1", "diamonds=3", "fan_in=100", "chain=20") for word in ("--set", pair)]
    found = json.loads(lab("flows", "--store", store, "--quick", *small, "--out", str(tmp_path), "--json").stdout)
    assert found["verdict"] == "held"
    assert sum(found["figures"]["faults_made"].values()) == 1
    assert (tmp_path / f"flows-{store}" / "plot.svg").read_text().startswith("<svg")
