"""Batches under kills: is each job that follows released exactly once, and are the counts exact? Beside them jobs that wait for
others: diamonds, one that waits for very many, a long chain."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from hawser.batch import BatchState, new_batch
from hawser.clock import SystemClock
from hawser.job import Job, NewJob, State, new_job
from hawser.lab.chaos.plan import Plan
from hawser.lab.chaos.processes import kill_process, kill_supervisor
from hawser.lab.chaos.server import kill_server
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.flow_judge import FAULTS, Flow, Outage, judge_flow, judge_links, lags, read_runs
from hawser.lab.flows_app import MANY, MEMBER_TASKS, MENDED, RUNS
from hawser.lab.plot import Line, Plot
from hawser.lab.trial import Trial, beside, faults, surely, trial
from hawser.store import Actor, Store

MEMBERS: Final = 100
GROWN: Final = 5
"""Members that one of them adds, in some batches."""

MS: Final = (50, 250)
FLOWS_LEASE_S: Final = 2.0
JOBS_AT_ONCE: Final = 1_000

DUE_BAR: Final = 0.05
"""Seconds within which `then` is due behind the last member, of 99 in 100 batches; and when processes are killed, of all."""
DUE_BAR_KILLED: Final = 1.5

AROUND: Final = (2.0, 10.0)
"""Seconds before a kill of the server and after its return in which the end of a batch is not held to that: none can tell."""

NUMBERS: Final = {
    "batches": Number(1_000, 12, "batches of 100 jobs while processes are killed; a fifth as many before"),
    "kills": Number(60, 3, "faults that are made"),
    "diamonds": Number(1_000, 20, "diamonds of four jobs"),
    "fan_in": Number(100_000, 2_000, "jobs that one job waits for"),
    "chain": Number(10_000, 200, "jobs of which each waits for the one before it"),
}


class Link(NamedTuple):
    """A job that waits for others."""

    job: NewJob
    upstream: Sequence[str] = ()


async def run(lab: Lab) -> Finding:
    dice = random.Random(lab.seed)  # noqa: S311  # no secret: a run that can be repeated
    batches = int(lab.number("batches"))
    calm, killed = ([_flow(dice) for _ in range(count)] for count in (max(2, batches // 5), batches))
    links = [*_diamonds(int(lab.number("diamonds"))), *_fan_in(int(lab.number("fan_in")))]
    chain = _chain(int(lab.number("chain")))
    took: dict[str, float] = {}
    async with (
        lab.place.fresh(timeout=30) as (url, store),
        # A job whose process was killed is run apart next time, a few at once: with fewer slots fewer are.
        trial(lab, url, store, slots=8 if lab.quick else 24, lease=FLOWS_LEASE_S, app="hawser.lab.flows_app:app") as found,
    ):
        await _produce(store, calm)
        await _ended(found, calm, took, "calm_batches")
        producing = asyncio.ensure_future(_produce(store, killed, links))
        outages: list[Outage] = []
        made = await faults(_plan(lab, found, outages), lab.number("kills"))
        await producing
        await _ended(found, [*calm, *killed], took, "batches_under_kills")
        first = await _judged(found, [*calm, *killed], replayed=False)
        times = await _times(found, calm), await _times(found, killed), await _times(found, killed, outages)
        replayed = await _replay(found)
        await _ended(found, [*calm, *killed], took, "replay", replayed=True)
        await _put(store, chain)
        await _ended(found, [*calm, *killed], took, "chain", replayed=True)
        second = await _judged(found, [*calm, *killed], replayed=True)
        jobs, seen = await found.jobs(), read_runs(await beside((found.folder / RUNS).read_text))
        second += judge_links([(each.job.id, each.upstream) for each in (*links, *chain)], jobs, seen)
    crashed = sum(job.crashes for job in jobs.values())
    told = {"faults_made": dict(made), "runs_cut_off": crashed, "members_replayed": replayed, **took}
    return _finding(lab, first, second, times, told)


def _finding(
    lab: Lab, first: Counter[str], second: Counter[str], times: tuple[list[float], ...], told: dict[str, Any]
) -> Finding:
    """`times`: of the calm batches, of those under kills, and of these without the ones that ended while the server was away."""
    wrong = first + second
    broken = [f"{name}: {wrong[name]}; it must be 0" for name in FAULTS if wrong[name]]
    calm, killed = (_share(each, 0.99) for each in times[:2])
    slowest, slowest_up = (_share(each, 1) for each in times[1:])
    if not lab.quick and calm > DUE_BAR:
        broken.append(f"`then` was due {calm * 1000:.0f} ms behind the last job (p99); the bar is {DUE_BAR * 1000:.0f} ms")
    if not lab.quick and slowest_up > DUE_BAR_KILLED:
        broken.append(f"`then` was due {slowest_up:.1f} s behind the last job under kills; the bar is {DUE_BAR_KILLED} s")
    figures = {
        **{name: wrong[name] for name in FAULTS},
        "then_due_ms_p99": round(calm * 1000, 1),
        "then_due_ms_p99_under_kills": round(killed * 1000, 1),
        "then_due_ms_most_under_kills": round(slowest * 1000, 1),
        "then_due_ms_most_with_the_server_up": round(slowest_up * 1000, 1),
        "batches_with_the_server_up": len(times[2]),
        **told,
    }
    batches, chain, fan_in = (int(lab.number(name)) for name in ("batches", "chain", "fan_in"))
    return Finding(
        broken=broken,
        figures=figures,
        settings={"members": MEMBERS, "member_ms": MS, "lease": FLOWS_LEASE_S, "units": 2, "processes_per_unit": 2},
        text=(
            f"{batches:,} batches of {MEMBERS} jobs, while {sum(told['faults_made'].values())} times a process, a supervisor or"
            f" the server was killed: {wrong['counts_off']} with wrong counts, {wrong['not_released']} jobs that follow not"
            f" released, {wrong['released_twice']} twice, {wrong['released_early']} early. {told['members_replayed']} dead jobs"
            f" were replayed after the end. `then` was due {calm * 1000:.1f} ms behind the last job (p99), {killed * 1000:.0f} ms"
            f" under kills, at most {slowest_up:.2f} s while the server was up. One job waited for {fan_in:,}, a chain of"
            f" {chain:,} took {told['chain_seconds']:.1f} s; {wrong['started_early']} started early, {wrong['not_done']} were not"
            " done."
        ),
        plot=Plot(
            title="How long behind the last job of its batch `then` was due",
            x="share of batches (%)",
            lines=[Line("calm, ms", _curve(times[0])), Line("under kills, ms", _curve(times[1]))],
        ),
    )


def _plan(lab: Lab, found: Trial, outages: list[Outage]) -> Plan:
    """Notes when the server was away."""

    def wall() -> float:
        return SystemClock().now() / 1e6

    def tell(name: str) -> None:
        found.fault(name)
        if name == "kill server":
            outages.append((wall() - AROUND[0], inf))

    def back(_: float) -> None:
        outages[-1] = outages[-1][0], wall() + AROUND[1]

    kinds: dict[str, Any] = {
        "kill process": (8, kill_process(found.units)),
        "kill supervisor": (2, kill_supervisor(found.units)),
    }
    if lab.place.server is not None and not lab.quick:
        kinds["kill server"] = (1, kill_server(lab.place.server, 1.0, back))
    return Plan(kinds, seed=lab.seed, every=(0.8, 1.6) if lab.quick else (2.0, 5.0), tell=tell)


# What is made.


def _flow(dice: random.Random) -> Flow:
    """One in four has members that die, one in ten is left open by its producer."""
    jobs = {word: _job("follow", batch="") for word in ("then", "on_success", "on_dead")}
    batch = new_batch(name="flow", **jobs)
    named = {word: msgspec.structs.replace(job, body=_body(batch=batch.id)) for word, job in jobs.items()}
    closed = dice.random() < 0.9
    dies = dice.randint(1, 3) if closed and dice.random() < 0.25 else 0
    return Flow(msgspec.structs.replace(batch, **named), MEMBERS, dies, closed)


def _members(flow: Flow) -> list[NewJob]:
    """One of them adds some when it is done."""
    dice = random.Random(flow.batch.id)  # noqa: S311  # no secret
    given: list[dict[str, Any]] = [{"ms": dice.randint(*MS)} for _ in range(flow.total - GROWN)]
    given[-1]["grows"] = GROWN
    for each in given[: flow.dies]:
        each["dies"] = True
    return [_job(dice.choice(MEMBER_TASKS), **each).of_batch(flow.batch.id) for each in given]


def _diamonds(count: int) -> list[Link]:
    made = []
    for _ in range(count):
        top, left, right, bottom = (_job("link") for _ in range(4))
        sides = [left.after(top), right.after(top)]
        made += [Link(top), *(Link(side, [top.id]) for side in sides), Link(bottom.after(left, right), [left.id, right.id])]
    return made


def _fan_in(count: int) -> list[Link]:
    many = [_job("link") for _ in range(count)]
    ids = [job.id for job in many]
    return [*(Link(job) for job in many), Link(_job("link").after(*ids), ids)]


def _chain(count: int) -> list[Link]:
    jobs = [_job("link") for _ in range(count)]
    return [Link(jobs[0]), *(Link(job.after(before), [before.id]) for before, job in pairwise(jobs))]


def _job(task: str, **arguments: Any) -> NewJob:
    return new_job(task=task, body=_body(**arguments), max_attempts=MANY, timeout=30)


def _body(**arguments: Any) -> bytes:
    return msgspec.json.encode(arguments)


# What is done.


async def _produce(store: Store, flows: Sequence[Flow], links: Sequence[Link] = ()) -> None:
    """Each batch is added to twice, and closed last. A store that is away is waited for; to repeat a call adds nothing."""
    await _put(store, links)
    for flow in flows:
        members = _members(flow)
        await surely(partial(store.open_batch, flow.batch))
        for some in (members[: MEMBERS // 2], members[MEMBERS // 2 :]):
            await surely(partial(store.enqueue, some))
        if flow.closed:
            await surely(partial(store.close_batch, flow.batch.id))


async def _put(store: Store, links: Sequence[Link]) -> None:
    for start in range(0, len(links), JOBS_AT_ONCE):
        some = [each.job for each in links[start : start + JOBS_AT_ONCE]]
        await surely(partial(store.enqueue, some))


async def _ended(found: Trial, flows: Sequence[Flow], took: dict[str, float], what: str, *, replayed: bool = False) -> None:
    """Wait until all has ended that should, for as long as anything moves; what has not is told by the verdict."""
    began = moved = time.monotonic()
    held = sum(state is State.READY for flow in flows for state in flow.releases(replayed).values())
    before: tuple[int, ...] = ()
    while time.monotonic() - moved < max(30.0, 10 * FLOWS_LEASE_S):
        running = (await surely(found.store.live_batches))[BatchState.RUNNING]
        stats = await surely(lambda: found.store.stats("default"))
        left = stats.ready + stats.scheduled + stats.retrying + stats.running
        if not running and not left and stats.held == held:
            break
        if (now := (running, left, stats.held)) != before:
            before, moved = now, time.monotonic()
        found.lab.show(what.replace("_", " "), 0, left)
        await asyncio.sleep(0.1)
    took[f"{what}_seconds"] = round(time.monotonic() - began, 1)


async def _replay(found: Trial) -> int:
    """Requeue the dead members of all batches; they are done this time."""
    (found.folder / MENDED).touch()
    dead = [id for id, job in (await found.jobs()).items() if job.state is State.DEAD and job.batch is not None]
    for start in range(0, len(dead), JOBS_AT_ONCE):
        await surely(partial(found.store.requeue, dead[start : start + JOBS_AT_ONCE], Actor("lab")))
    return len(dead)


# What became of it.


async def _judged(found: Trial, flows: Sequence[Flow], *, replayed: bool) -> Counter[str]:
    jobs = await found.jobs()
    seen = read_runs(await beside((found.folder / RUNS).read_text))
    members: dict[str, Counter[State]] = defaultdict(Counter)
    for job in jobs.values():
        if job.batch is not None:
            members[job.batch][job.state] += 1
    wrong: Counter[str] = Counter()
    for flow in flows:
        batch = await found.store.batch(flow.batch.id)
        wrong += judge_flow(flow, batch, members[flow.batch.id], jobs, seen, replayed=replayed)
    return wrong


async def _times(found: Trial, flows: Sequence[Flow], outages: Sequence[Outage] = ()) -> list[float]:
    jobs: dict[str, Job] = await found.jobs()
    last: dict[str, float] = {}
    for job in jobs.values():
        if job.batch is not None and job.finished_at is not None:
            last[job.batch] = max(last.get(job.batch, 0.0), job.finished_at.timestamp())
    return lags(flows, jobs, last, outages)


def _share(times: Sequence[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))] if times else 0.0


def _curve(times: Sequence[float]) -> list[tuple[float, float]]:
    return [(100 * (number + 1) / len(times), 1000 * each) for number, each in enumerate(times)]
