"""Durable flows under kills and cuts: is each step recorded once, does every wait wake, and is nothing repeated but in the window
between an effect and its record?"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from hawser.job import NewJob, new_job
from hawser.lab.chaos.plan import MakeFault, Plan
from hawser.lab.chaos.processes import kill_process, kill_supervisor
from hawser.lab.chaos.server import kill_server
from hawser.lab.chaos.wire import Wire
from hawser.lab.emitter import Emitter
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.plot import Line, Plot
from hawser.lab.step_judge import STEP_FAULTS, DurableFlow, judge_steps, lags, read_lines
from hawser.lab.steps_app import FLOW_TASKS, MANY, STEP_LINES
from hawser.lab.store_under_test import Base, same_store
from hawser.lab.trial import Trial, beside, faults, surely, trial
from hawser.store import RecordedStep, Store
from hawser.stores import make_store

STEPS_APP: Final = "hawser.lab.steps_app:app"
STEPS_LEASE_S: Final = 30.0
QUICK_LEASE_S: Final = 2.0
"""Seconds of a lease: as workers have it by default, so that no wake hangs on a short one; in a quick run less, since a job whose
supervisor is killed comes back when its lease is over."""
SLEEPS_S: Final = (0.1, 2.0)
"""Seconds that a flow sleeps, twice."""

EVENT_COMES: Final = 0.9
EVENT_FIRST: Final = 0.1
"""The share of flows whose last event comes at all, and of those whose first comes before they wait for it."""

FLOWS_AT_ONCE: Final = 250
FLOWS_ALIVE: Final = 2_000
"""Flows that are enqueued in one call, and that there are at a time: so all of their steps are under way at any time."""

JOBS_READ_AT_ONCE: Final = 16
READY_BAR_S: Final = 0.05
"""Seconds from emit to ready, of 99 in 100 events, with workers at work and no faults."""

ANSWER_WITHIN_S: Final = 3.0
"""Seconds after which a call to a server that does not answer is given up."""

NUMBERS: Final = {
    "flows": Number(20_000, 60, "flows of ten steps while faults are made"),
    "calm": Number(1_000, 20, "flows before, without faults: emit to ready is timed by them"),
    "rate": Number(40, 20, "of those, a second"),
    "kills": Number(40, 4, "faults that are made"),
}


class FlowJob(NamedTuple):
    """A flow, and the job that is enqueued for it."""

    flow: DurableFlow
    job: NewJob


class Ways(NamedTuple):
    """How the units reach the store, how producer and emitter do, and what may befall it."""

    urls: Sequence[str]
    store: Store
    faults: dict[str, tuple[float, MakeFault]]


async def run(lab: Lab) -> Finding:
    dice = random.Random(lab.seed)  # noqa: S311  # no secret: a run that can be repeated
    calm, hurt = (_flows(dice, int(lab.number(name))) for name in ("calm", "flows"))
    slots, lease = (8, QUICK_LEASE_S) if lab.quick else (24, STEPS_LEASE_S)
    async with lab.place.fresh(timeout=30) as base:
        async with trial(lab, base.url, base.store, slots=slots, lease=lease, app=STEPS_APP) as found:
            async with _emitter(found, base.store, calm) as before:
                await _produce_evenly(base.store, calm, lab.number("rate"))
                await _ended(found, before)
            text = await beside((found.folder / STEP_LINES).read_text)
        began = time.monotonic()
        async with (
            _ways(lab, base) as ways,
            trial(lab, base.url, base.store, slots=slots, lease=lease, app=STEPS_APP, urls=ways.urls) as found,
            _emitter(found, ways.store, hurt) as under,
        ):
            producing = asyncio.ensure_future(_produce(found, ways.store, hurt))
            await found.until(partial(_working, found))
            made = await faults(_plan(lab, found, ways), lab.number("kills"))
            done_then = await surely(lambda: base.store.stats("default"))
            await producing
            await _ended(found, under)
            text += await beside((found.folder / STEP_LINES).read_text)
        jobs, flows = await found.jobs(), [each.flow for each in (*calm, *hurt)]
        wakes = [*before.wakes, *under.wakes]
        wrong = judge_steps(flows, jobs, await _steps(base.store, flows), read_lines(text), wakes)
    told = {
        "faults_made": dict(made),
        "jobs_done_when_faults_ended": done_then.done,
        "seconds_under_faults": round(time.monotonic() - began, 1),
        "runs_cut_off": sum(job.crashes for job in jobs.values()),
        "effects_repeated": wrong["effects_repeated"],
        "events_emitted": len(wakes),
        "emits_repeated_or_looks_in_vain": under.errors,
        "waiting_when_the_event_came": sum(wake.held for wake in wakes),
    }
    return _finding(lab, wrong, (lags(before.wakes), lags(under.wakes)), told)


def _finding(lab: Lab, wrong: Counter[str], times: tuple[list[float], list[float]], told: dict[str, Any]) -> Finding:
    broken = [f"{name}: {wrong[name]}; it must be 0" for name in STEP_FAULTS if wrong[name]]
    half, most, hurt = _share(times[0], 0.5), _share(times[0], 0.99), _share(times[1], 0.99)
    if not lab.quick and most > READY_BAR_S:
        broken.append(f"emit to ready took {most * 1000:.0f} ms (p99, no faults); the bar is {READY_BAR_S * 1000:.0f} ms")
    flows, calm = int(lab.number("flows")), int(lab.number("calm"))
    listed = ", ".join(f"{name} {times}" for name, times in sorted(told["faults_made"].items()))
    return Finding(
        broken=broken,
        figures={
            **{name: wrong[name] for name in STEP_FAULTS},
            "steps_recorded": 10 * (flows + calm) - wrong["steps_missing"],
            "emit_to_ready_ms_p50": round(half * 1000, 1),
            "emit_to_ready_ms_p99": round(most * 1000, 1),
            "emit_to_ready_ms_p99_under_faults": round(hurt * 1000, 1),
            **told,
        },
        settings={
            "lease": QUICK_LEASE_S if lab.quick else STEPS_LEASE_S,
            "units": 2,
            "processes_per_unit": 2,
            "sleeps_s": SLEEPS_S,
            "alive": FLOWS_ALIVE,
        },
        text=(
            f"{flows:,} flows of 10 steps with sleeps, waits and jobs of their own in {told['seconds_under_faults']:.0f} s,"
            f" meanwhile {listed or 'no fault'}: {wrong['flows_lost']} lost, {wrong['not_done']} not done,"
            f" {wrong['steps_missing']} steps missing, {wrong['steps_unexpected']} too many, {wrong['values_changed']} whose"
            f" value changed; {told['runs_cut_off']:,} runs were cut off. {told['effects_repeated']} effects were repeated"
            f" under their key between effect and record, {wrong['effects_repeated_outside']} otherwise."
            f" {told['events_emitted']:,} events, {wrong['lost_wakes']} lost wakes; emit to ready {half * 1000:.1f} ms (p50),"
            f" {most * 1000:.1f} ms (p99) without faults, {hurt * 1000:.0f} ms (p99) under them."
        ),
        plot=Plot(
            title="From emit until the job that waits is ready",
            x="share of events (%)",
            lines=[Line("calm, ms", _curve(times[0])), Line("under faults, ms", _curve(times[1]))],
        ),
    )


# What is done to it.


def _plan(lab: Lab, found: Trial, ways: Ways) -> Plan:
    kinds: dict[str, tuple[float, MakeFault]] = {
        "kill process": (8, kill_process(found.units)),
        "kill supervisor": (2, kill_supervisor(found.units)),
        **ways.faults,
    }
    return Plan(kinds, seed=lab.seed, every=(0.8, 1.6) if lab.quick else (2.0, 5.0), tell=found.fault)


@asynccontextmanager
async def _ways(lab: Lab, base: Base) -> AsyncIterator[Ways]:
    """On a server of our own: every second unit, the producer and the emitter go through a wire that is cut, also behind a COMMIT
    whose answer is then lost; and the server is killed."""
    own = lab.place.server
    if own is None:
        yield Ways((), base.store, {})
        return
    with Wire(own.port, seed=lab.seed) as wire:
        url = same_store(base.url, wire.url(own.tcp_url), timeout=f"{ANSWER_WITHIN_S:g}")
        store = make_store(url)
        await store.open()
        kinds: dict[str, tuple[float, MakeFault]] = {
            "kill server": (2, kill_server(own, 1.0)),
            "cut": (3, lambda _: wire.cut()),
            "replies lost": (6, lambda dice: wire.lose_reply(dice.randint(1, 6))),
        }
        try:
            yield Ways((base.url, url), store, kinds)
        finally:
            wire.heal()
            await store.close()


# What is made, and how it goes on.


def _flows(dice: random.Random, count: int) -> list[FlowJob]:
    made = []
    for number in range(count):
        comes, pause = dice.random() < EVENT_COMES, round(dice.uniform(*SLEEPS_S), 2)
        body = msgspec.json.encode({"number": number, "pause": pause, "comes": comes})
        job = new_job(task=dice.choice(FLOW_TASKS), body=body, max_attempts=MANY, timeout=30)
        made.append(FlowJob(DurableFlow(job.id, number, comes), job))
    return made


def _emitter(found: Trial, store: Store, flows: Sequence[FlowJob]) -> Emitter:
    emitter = Emitter(store, found.folder / STEP_LINES, [each.flow for each in flows], found.lab.seed)
    emitter.first(each.flow for each in flows[: int(EVENT_FIRST * len(flows))])
    return emitter


async def _produce_evenly(store: Store, flows: Sequence[FlowJob], rate: float) -> None:
    began = time.monotonic()
    for number, each in enumerate(flows):
        await asyncio.sleep(began + number / rate - time.monotonic())
        await store.enqueue([each.job])


async def _produce(found: Trial, store: Store, flows: Sequence[FlowJob]) -> None:
    """As many at a time as there may be. To repeat a call adds nothing."""
    for start in range(0, len(flows), FLOWS_AT_ONCE):
        while await _alive(found) > FLOWS_ALIVE:  # noqa: ASYNC110  # they end in other processes
            await asyncio.sleep(0.1)
        await surely(partial(store.enqueue, [each.job for each in flows[start : start + FLOWS_AT_ONCE]]))
        found.lab.show("flows enqueued", len(flows), start + FLOWS_AT_ONCE)


async def _alive(found: Trial) -> int:
    stats = await surely(lambda: found.store.stats("default"))
    return stats.ready + stats.scheduled + stats.retrying + stats.running + stats.held


async def _working(found: Trial) -> bool:
    """Whether the first runs have begun: a fault before that hits nothing."""
    return (found.folder / STEP_LINES).exists()


async def _ended(found: Trial, emitter: Emitter) -> None:
    """Wait until all has ended, for as long as anything moves; what has not is told by the verdict."""
    moved, before = time.monotonic(), -1
    while time.monotonic() - moved < max(30.0, 3 * found.lease):
        left = await _alive(found) + emitter.under_way
        if not left:
            return
        if left != before:
            before, moved = left, time.monotonic()
        found.lab.show("left", 0, left)
        await asyncio.sleep(0.1)


async def _steps(store: Store, flows: Sequence[DurableFlow]) -> dict[str, list[RecordedStep]]:
    found: dict[str, list[RecordedStep]] = {}
    for start in range(0, len(flows), JOBS_READ_AT_ONCE):
        some = [flow.id for flow in flows[start : start + JOBS_READ_AT_ONCE]]
        found.update(zip(some, await asyncio.gather(*map(store.steps, some)), strict=True))
    return found


def _share(times: Sequence[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))] if times else 0.0


def _curve(times: Sequence[float]) -> list[tuple[float, float]]:
    return [(100 * (number + 1) / len(times), 1000 * each) for number, each in enumerate(times)]
