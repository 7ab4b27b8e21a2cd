"""`hawser lab steps` notices what it is there for: its judgement, with forged steps, jobs and lines; and a small run."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawser.job import Job, State, new_job
from hawser.lab import emitter
from hawser.lab.app import WITNESS
from hawser.lab.emitter import Emitter
from hawser.lab.step_judge import DurableFlow, EventWake, judge_steps, lags, read_lines
from hawser.lab.steps_app import EFFECT_STEPS, STEP_LINES, app, events_of
from hawser.outcome import Held
from hawser.store import RecordedStep, Settlement, Share
from hawser.stores.memory import MemoryStore
from hawser.testing import AppUnderTest
from tests.lab.test_experiments import lab
from tests.repetition import over

AT = datetime(2026, 1, 1, tzinfo=UTC)


def job(id: str, task: str, state: State = State.DONE, **fields: Any) -> Job:
    common = {"priority": 4, "max_attempts": 5, "timeout": 30.0, "attempt": 1, "lease": 9, "run_at": AT, "enqueued_at": AT}
    return Job(id=id, task=task, queue="default", body=b"{}", state=state, **{**common, **fields})


class Played:
    """Two flows, of which one waited for its last event in vain, and all as it should be. Each ran nine times."""

    def __init__(self) -> None:
        self.flows = [DurableFlow("a", 1, comes=True), DurableFlow("b", 2, comes=False)]
        self.jobs = {f"{flow.id}{n}": job(f"{flow.id}{n}", f"part{n}") for flow in self.flows for n in range(2)}
        self.jobs |= {each.id: job(each.id, "flow1", result_body=msgspec.json.encode(each.result())) for each in self.flows}
        self.steps = {flow.id: [recorded(*each) for each in flow.steps().items()] for flow in self.flows}
        keys = [f"{flow.id}:{name}" for flow in self.flows for name in EFFECT_STEPS]
        self.lines = [f"{word} {key} 3" for key in keys for word in ("effect", "saw", "saw")]
        self.wakes = [EventWake(event, held=True, seconds=0.01) for event in ("paid:a", "sent:a", "paid:b")]

    def wrong(self) -> Counter[str]:
        return judge_steps(self.flows, self.jobs, self.steps, read_lines("\n".join(self.lines)), self.wakes)

    def change(self, id: str, name: str, **fields: Any) -> None:
        self.steps[id] = [msgspec.structs.replace(each, **fields) if each.name == name else each for each in self.steps[id]]


def recorded(name: str, kind: str, lease: int = 3) -> RecordedStep:
    event = name if kind in ("event", "timeout", "wait") else None
    return RecordedStep(name=name, kind=kind, value_body=str(lease).encode(), at=AT, lease=lease, event=event)


def test_what_is_right_is_not_found_fault_with():
    assert not Played().wrong()


def a_flow_that_is_nowhere(found: Played) -> None:
    del found.jobs["a"]


def a_flow_that_still_waits(found: Played) -> None:
    found.jobs["a"] = job("a", "flow1", State.READY)


def another_result(found: Played) -> None:
    found.jobs["a"] = job("a", "flow1", result_body=b'{"paid": 1, "parts": [4, 2], "sent": 1}')


def a_step_without_a_record(found: Played) -> None:
    found.steps["a"] = [each for each in found.steps["a"] if each.name != "settle"]


def a_step_with_two_records(found: Played) -> None:
    found.steps["a"].append(recorded("gather", "gather"))


def a_value_of_another_run_than_the_one_that_recorded_it(found: Played) -> None:
    found.change("a", "charge", value_body=b"2")


def a_run_that_saw_another_value(found: Played) -> None:
    found.lines.append("saw a:charge 4")


def an_effect_that_was_not_made(found: Played) -> None:
    found.lines.remove("effect a:charge 3")


def an_effect_under_a_key_of_no_flow(found: Played) -> None:
    found.lines.append("effect c:charge 3")


def an_effect_by_a_run_behind_the_record(found: Played) -> None:
    found.lines.append("effect a:charge 4")


def an_effect_twice_in_one_run(found: Played) -> None:
    found.lines.append("effect a:charge 3")


def a_child_that_is_nowhere(found: Played) -> None:
    del found.jobs["a1"]


def children_that_were_added_twice(found: Played) -> None:
    found.jobs["x"] = job("x", "part7")


def a_wait_for_an_event_that_came(found: Played) -> None:
    found.steps["b"].append(recorded("paid:b", "wait"))


def a_wake_that_came_late(found: Played) -> None:
    found.wakes[0] = EventWake("paid:a", held=True, seconds=2.0, late=True)


@pytest.mark.parametrize(
    ("forge", "faults"),
    [
        (a_flow_that_is_nowhere, {"flows_lost": 1}),
        (a_flow_that_still_waits, {"not_done": 1}),
        (another_result, {"wrong_results": 1}),
        (a_step_without_a_record, {"steps_missing": 1}),
        (a_step_with_two_records, {"steps_unexpected": 1}),
        (a_value_of_another_run_than_the_one_that_recorded_it, {"values_changed": 1}),
        (a_run_that_saw_another_value, {"values_changed": 1}),
        (an_effect_that_was_not_made, {"effects_missing": 1}),
        (an_effect_under_a_key_of_no_flow, {"effects_of_no_flow": 1}),
        (an_effect_by_a_run_behind_the_record, {"effects_repeated": 1, "effects_repeated_outside": 1}),
        (an_effect_twice_in_one_run, {"effects_repeated": 1, "effects_repeated_outside": 1}),
        (a_child_that_is_nowhere, {"children_lost": 1}),
        (children_that_were_added_twice, {"children_doubled": 1}),
        (a_wait_for_an_event_that_came, {"lost_wakes": 1, "steps_unexpected": 1}),
        (a_wake_that_came_late, {"lost_wakes": 1}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_is_wrong_is_named(forge: Callable[[Played], None], faults: dict[str, int]):
    found = Played()
    forge(found)
    assert found.wrong() == faults


def test_an_effect_of_a_run_that_was_cut_off_before_its_record_is_counted_and_no_fault():
    found = Played()
    found.lines += ["effect a:charge 1", "effect a:charge 2", "sa"]
    assert found.wrong() == {"effects_repeated": 2}


def test_the_time_to_ready_is_that_of_jobs_which_were_held():
    wakes = [
        EventWake("a", held=True, seconds=0.5),
        EventWake("b", held=False, seconds=0.9),
        EventWake("c", held=True, seconds=0.1),
    ]
    assert lags(wakes) == [0.1, 0.5]


@pytest.mark.parametrize("lost", [False, True])
async def test_the_emitter_notices_a_wake_that_is_lost(lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(emitter, "GIVEN_UP_AFTER_S", 0.2)
    store = MemoryStore()
    [id] = [each.id for each in await store.enqueue([new_job(task="flow0", body=b"{}")])]
    [run] = await store.claim([Share("default")], 1, "w", 60)
    paid, _ = events_of(id)
    await store.settle([Settlement(id, run.lease, Held(paid, event=paid))])
    if lost:
        monkeypatch.setattr(store, "_wake", lambda *_: None)
    (tmp_path / STEP_LINES).write_text(f"at {paid}\nat sent")
    async with Emitter(store, tmp_path / STEP_LINES, [DurableFlow(id, 1, comes=True)], seed=1) as found, asyncio.timeout(10):
        while not found.wakes:  # it has no event for this
            await asyncio.sleep(0.01)
    assert [(wake.event, wake.held, wake.late) for wake in found.wakes] == [(paid, True, lost)]


@pytest.mark.parametrize("store", over(["postgres", "redis"], ["sqlite"]))
def test_durable_flows_hold_under_faults(store: str, tmp_path: Path):
    """The checks of this repository play it on SQLite, with all experiments."""
    small = [word for pair in ("flows=20", "calm=5", "kills=2") for word in ("--set", pair)]
    found = json.loads(lab("steps", "--store", store, "--quick", *small, "--out", str(tmp_path), "--json").stdout)
    assert found["verdict"] == "held"
    assert sum(found["figures"]["faults_made"].values()) == 2
    assert found["figures"]["steps_recorded"] == 250
    assert (tmp_path / f"steps-{store}" / "plot.svg").read_text().startswith("<svg")


async def test_durable_flows_hold_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The lab has no store in memory, since none outlives its process: here the same flows run without faults."""
    monkeypatch.setenv(WITNESS, str(tmp_path))
    with AppUnderTest() as found:
        found.adopt(app)
        tasks = [app.tasks[f"flow{number}"] for number in range(6)]
        made = [(await each.aenqueue(number=n, pause=1.0, comes=n % 2 == 0), n % 2 == 0) for n, each in enumerate(tasks)]
        flows = [DurableFlow(each.id, n, comes) for n, (each, comes) in enumerate(made)]
        for flow in flows:
            for event in events_of(flow.id)[: 2 if flow.comes else 1]:
                await found.aemit(event, flow.number)
        jobs: dict[str, Job] = {}
        for _ in range(6):
            jobs |= {each.id: each for each in (await found.adrain()).jobs}
            found.advance(2)
        steps = {flow.id: found.steps(flow.id) for flow in flows}
        assert not judge_steps(flows, jobs, steps, read_lines((tmp_path / STEP_LINES).read_text()), ())
