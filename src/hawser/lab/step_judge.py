"""What became of durable flows: pure. `hawser lab steps` is judged by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hawser.job import Job, State
from hawser.lab.steps_app import EFFECT_STEPS, events_of
from hawser.store import RecordedStep

STEP_FAULTS: Final = (
    "flows_lost",
    "not_done",
    "steps_missing",
    "steps_unexpected",
    "values_changed",
    "wrong_results",
    "effects_missing",
    "effects_of_no_flow",
    "effects_repeated_outside",
    "children_lost",
    "children_doubled",
    "lost_wakes",
)
"""What must be 0."""

WAKE_BAR_S: Final = 1.5
"""Seconds behind an answered emit, with the store there, after which no job may wait for that event any more."""


class DurableFlow(NamedTuple):
    """A flow that was enqueued."""

    id: str
    number: int
    comes: bool
    """Whether its last event is emitted; else the wait for it ends by its time."""

    def steps(self) -> dict[str, str]:
        """The kind of each step that has to be recorded, by its name."""
        paid, sent = events_of(self.id)
        return {
            **dict.fromkeys(EFFECT_STEPS, "step"),
            **dict.fromkeys(("cool off", "settle"), "sleep"),
            paid: "event",
            "gather": "gather",
            sent: "event" if self.comes else "timeout",
        }

    def result(self) -> dict[str, Any]:
        parts = [2 * self.number, 2 * (self.number + 1)]
        return {"paid": self.number, "parts": parts, "sent": self.number if self.comes else None}


class StepLines(NamedTuple):
    """What handlers wrote down."""

    effects: Mapping[str, Sequence[int]]
    """By key: the leases of the runs that made it, in their order."""
    saw: Mapping[str, frozenset[int]]
    """By key: what runs got as the value of the step."""


class EventWake(NamedTuple):
    """An event that was emitted, and answered."""

    event: str
    held: bool
    """Whether a job was held for it when it was emitted, and the first call was answered."""
    seconds: float
    """From the call until the job was seen to be awake."""
    late: bool = False
    """Whether a job was seen to wait for it later than it may."""


def read_lines(text: str) -> StepLines:
    """The lines of the app; the last may be cut by a kill."""
    effects: dict[str, list[int]] = {}
    saw: dict[str, set[int]] = {}
    for line in text.splitlines():
        match line.split():
            case ["effect", key, lease]:
                effects.setdefault(key, []).append(int(lease))
            case ["saw", key, lease]:
                saw.setdefault(key, set()).add(int(lease))
    return StepLines(effects, {key: frozenset(each) for key, each in saw.items()})


def judge_steps(
    flows: Sequence[DurableFlow],
    jobs: Mapping[str, Job],
    steps: Mapping[str, Sequence[RecordedStep]],
    lines: StepLines,
    wakes: Iterable[EventWake],
) -> Counter[str]:
    """What is wrong, and beside it how many effects were repeated in the window between an effect and its record."""
    found: Counter[str] = Counter()
    for flow in flows:
        found += _judge_flow(flow, jobs.get(flow.id), steps.get(flow.id, ()), lines)
    found += _judge_waits(flows, steps, wakes)
    children = sum(job.task.startswith("part") for job in jobs.values())
    found["children_lost"] = max(0, 2 * len(flows) - children)
    found["children_doubled"] = max(0, children - 2 * len(flows))
    keys = {f"{flow.id}:{name}" for flow in flows for name in EFFECT_STEPS}
    found["effects_of_no_flow"] = len(lines.effects.keys() - keys)
    return +found


def _judge_flow(flow: DurableFlow, job: Job | None, steps: Sequence[RecordedStep], lines: StepLines) -> Counter[str]:
    found: Counter[str] = Counter()
    if job is None:
        return Counter({"flows_lost": 1})
    if job.state is not State.DONE:
        found["not_done"] += 1
    elif job.result != flow.result():
        found["wrong_results"] += 1
    wanted, kept = flow.steps(), Counter((step.name, step.kind) for step in steps)
    found["steps_missing"] = (Counter(wanted.items()) - kept).total()
    # A step under two records, or one that no handler has made.
    found["steps_unexpected"] = (kept - Counter(wanted.items())).total()
    recorded = {step.name: step for step in steps}
    for name in EFFECT_STEPS:
        found += _judge_effect(recorded.get(name), lines.effects.get(f"{flow.id}:{name}", ()), lines.saw.get(f"{flow.id}:{name}"))
    return found


def _judge_effect(step: RecordedStep | None, made: Sequence[int], saw: frozenset[int] | None) -> Counter[str]:
    """A run makes an effect that no run before it has recorded. So a repeat is of a run before the one that recorded it; every
    run gets the value that was recorded first."""
    found = Counter({"effects_missing": int(not made), "effects_repeated": max(0, len(made) - 1)})
    if step is None:
        return found
    found["effects_repeated_outside"] = repeated_outside(step, made)
    found["values_changed"] = int(step.value != step.lease or (saw is not None and saw != {step.lease}))
    return found


def repeated_outside(step: RecordedStep, made: Sequence[int]) -> int:
    """How many of the runs, by lease, made the effect again outside of the window between an effect and its record: behind the
    run that recorded it, or twice in one run."""
    return sum(lease > step.lease for lease in made) + len(made) - len(set(made))


def _judge_waits(
    flows: Iterable[DurableFlow], steps: Mapping[str, Sequence[RecordedStep]], wakes: Iterable[EventWake]
) -> Counter[str]:
    """Wakes that came too late, and waits for an event that has come at the end of all: they would last for ever."""
    emitted, late = set(), set()
    for wake in wakes:
        emitted.add(wake.event)
        if wake.late:
            late.add(wake.event)
    still = {step.event for flow in flows for step in steps.get(flow.id, ()) if step.kind == "wait" and step.event in emitted}
    return Counter({"lost_wakes": len(late | still)})


def lags(wakes: Iterable[EventWake]) -> list[float]:
    """Seconds from emit to ready of jobs that were held when it came."""
    return sorted(wake.seconds for wake in wakes if wake.held)
