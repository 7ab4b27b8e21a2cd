"""A limit of ten and a rate, over several processes that are killed: are they kept, and used?"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from hawser.errors import StoreUnavailable
from hawser.job import Job, NewJob
from hawser.lab.app import WITNESS
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.generator import HEALTHY_JOB_ATTEMPTS
from hawser.lab.journal import Journal, Record, What, read
from hawser.lab.load import Crew, all_jobs, produce, workers
from hawser.lab.plot import Line, Plot
from hawser.lab.process_tree import children, send
from hawser.limit import Limit
from hawser.store import Actor, Filter, Store, Target

CAP: Final = 10
HANDLER_MS: Final = 50
LIMITS_PROCESSES: Final = 4

MEAN_BAR: Final = 9.5
"""Jobs of the limit of ten that run on average while there is work, also while processes are killed: what a killed one held is
taken back at once."""

RATE_BAR: Final = 0.93
"""The part of the rate that must be used: a sixteenth is given away by counting in slots."""

NUMBERS: Final = {
    "seconds": Number(30, 3, "seconds of the limit, and of the limit under kills"),
    "rate_seconds": Number(60, 3, "seconds of the rate"),
    "kill_every": Number(2, 1.5, "seconds between two kills of a worker process"),
    "rate": Number(1000, 200, "starts a second"),
}


class TimedRun(NamedTuple):
    """One run, in seconds: by the store's clock, from its claim until its outcome was written or it was taken back; or by its
    handler's, from its first line to its last."""

    start: float
    end: float


class Capped(NamedTuple):
    """What ran under the limit: as the store has it, and as the handlers noted it."""

    runs: list[TimedRun]
    handlers: list[TimedRun]


async def run(lab: Lab) -> Finding:
    seconds, rate = lab.number("seconds"), int(lab.number("rate"))
    calm = await _capped(lab, seconds, kill_every=None)
    killed = await _capped(lab, seconds, kill_every=lab.number("kill_every"))
    starts = await _rated(lab, lab.number("rate_seconds"), rate)
    most, mean = _most_at_once(calm.handlers), _mean_at_once(calm.runs)
    most_killed, mean_killed = _most_at_once(killed.handlers), _mean_at_once(killed.runs)
    window, per_second = _most_in_a_second(starts), _per_second(starts)
    broken = kept(calm.handlers, killed.handlers, starts, rate)
    broken += [] if lab.quick else used(calm.runs, killed.runs, starts, rate)
    return Finding(
        broken=broken,
        figures={
            "most_at_once": most,
            "mean_at_once": round(mean, 2),
            "mean_handlers": round(_mean_at_once(calm.handlers), 2),
            "runs": len(calm.runs),
            "most_at_once_under_kills": most_killed,
            "mean_at_once_under_kills": round(mean_killed, 2),
            "mean_handlers_under_kills": round(_mean_at_once(killed.handlers), 2),
            "runs_under_kills": len(killed.runs),
            "most_in_a_second": window,
            "starts_per_second": round(per_second, 1),
            "starts": len(starts),
        },
        settings={"limit": CAP, "handler_ms": HANDLER_MS, "processes": LIMITS_PROCESSES, "rate": f"{rate}/s"},
        text=(
            f"{LIMITS_PROCESSES} processes ran jobs of {HANDLER_MS} ms under a limit of {CAP}: {mean:.2f} at once on average,"
            f" never more than {most}. With a process killed every {lab.number('kill_every'):g} s: {mean_killed:.2f} on average,"
            f" never over {most_killed}. Under a rate of {rate}/s they started {per_second:.0f} a second, at most {window} in any"
            " second."
        ),
        plot=Plot(
            title=f"Runs at once under a limit of {CAP}",
            x="seconds",
            lines=[Line("calm", _curve(calm.runs)), Line("killed every few seconds", _curve(killed.runs))],
        ),
    )


def kept(calm: Sequence[TimedRun], killed: Sequence[TimedRun], starts: Sequence[float], rate: int) -> list[str]:
    """What went beyond the limit or the rate. The runs are those of the handlers: the store's books would agree."""
    most = [number for runs in (calm, killed) if (number := _most_at_once(runs)) > CAP]
    broken = [f"{number} ran at once under a limit of {CAP}" for number in most]
    if not calm or not killed:
        broken.append("no handler noted that it ran")
    if (window := _most_in_a_second(starts)) > rate:
        broken.append(f"{window} started within a second under a rate of {rate}/s")
    return broken


def used(calm: Sequence[TimedRun], killed: Sequence[TimedRun], starts: Sequence[float], rate: int) -> list[str]:
    """Where too little of the limit or the rate was used, although there was work."""
    broken = []
    for runs, when in ((calm, ""), (killed, " while processes were killed")):
        if (mean := _mean_at_once(runs)) < MEAN_BAR:
            broken.append(f"on average {mean:.2f} of {CAP} ran{when}; the bar is {MEAN_BAR}")
    if (per_second := _per_second(starts)) < RATE_BAR * rate:
        broken.append(f"{per_second:.0f} started a second under a rate of {rate}/s; the bar is {RATE_BAR * rate:.0f}")
    return broken


async def _capped(lab: Lab, seconds: float, kill_every: float | None) -> Capped:
    """All runs of a task under the limit, while processes are killed or not."""
    jobs = int(seconds * CAP * 1000 / HANDLER_MS * 1.2)
    async with lab.place.fresh() as (url, store):
        await store.set_limit(Target("task", "fast"), Limit(running=CAP), Actor("lab"))
        body = b'{"seq":0,"ms":%d}' % HANDLER_MS
        backlog = [NewJob(task="fast", body=body, max_attempts=HEALTHY_JOB_ATTEMPTS) for _ in range(jobs)]
        await produce(store, backlog, 1_000, lab.show, "jobs")
        folder = lab.folder / ("calm" if kill_every is None else "killed")
        folder.mkdir()
        environ = {WITNESS: str(folder)}
        with workers(url, lab.folder, processes=LIMITS_PROCESSES, slots=CAP, claim_batch=CAP, environ=environ) as crew:
            await _begun(store, crew)
            await _pass(lab, crew, seconds, kill_every, Journal(folder / "journal"))
        found = [job async for job in all_jobs(store, Filter(task="fast"))]
        return Capped(list(_runs(found)), list(handled(read(folder / "journal"), {job.id for job in found})))


async def _rated(lab: Lab, seconds: float, rate: int) -> list[float]:
    """When jobs started under the rate."""
    async with lab.place.fresh() as (url, store):
        await store.set_limit(Target("task", "noop"), Limit(rate=f"{rate}/s"), Actor("lab"))
        backlog = [NewJob(task="noop", body=b'{"seq":0,"to":""}') for _ in range(int((seconds + 3) * rate))]
        await produce(store, backlog, 2_000, lab.show, "jobs")
        with workers(url, lab.folder, processes=LIMITS_PROCESSES, slots=rate, claim_batch=rate) as crew:
            await _begun(store, crew)
            await _pass(lab, crew, seconds, None, None)
        return sorted(run.start for run in _runs([job async for job in all_jobs(store, Filter(task="noop"))]))


async def _begun(store: Store, crew: Crew) -> None:
    """Starting processes is no part of it."""
    while not (await store.stats()).done:
        if not crew.lives:
            raise StoreUnavailable(f"the workers made no progress; they said:\n{crew.last_words()}")
        await asyncio.sleep(0.05)


async def _pass(lab: Lab, crew: Crew, seconds: float, kill_every: float | None, journal: Journal | None) -> None:
    dice = random.Random(lab.seed)  # noqa: S311  # a run that can be repeated
    began = killed = time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        if kill_every is not None and now - killed >= kill_every and (processes := children(crew.process.pid)):
            chosen = dice.choice(processes)
            if journal is not None:
                journal.write(What.FAULT, note=str(chosen))
            with suppress(ProcessLookupError):
                send([chosen], signal.SIGKILL)
            killed = now
        lab.show("seconds", int(now - began), int(seconds))
        await asyncio.sleep(0.05)


def _runs(jobs: Sequence[Job]) -> Iterator[TimedRun]:
    """Every run that has ended. Those that were killed stand in the attempts of their jobs."""
    for job in jobs:
        for attempt in job.attempts:
            if attempt.ended_at is not None:
                yield TimedRun(attempt.started_at.timestamp(), attempt.ended_at.timestamp())


def handled(records: Sequence[Record], ids: Collection[str]) -> Iterator[TimedRun]:
    """The runs of these jobs as their handlers noted them, without those whose lease was lost: a limit does not count these any
    more. What was killed ended then; a fault's note names the process."""
    starts: dict[tuple[str, int], tuple[int, str]] = {}
    ends: dict[tuple[str, int], int] = {}
    killed: dict[str, int] = {}
    lost: set[tuple[str, int]] = set()
    for record in records:
        runs = [(run.id, run.lease) for run in record.runs if run.id in ids]
        match record.what:
            case What.START:
                starts |= dict.fromkeys(runs, (record.at, record.by))
            case What.END:
                ends |= dict.fromkeys(runs, record.at)
            case What.STALE:
                lost.update(runs)
            case What.FAULT:
                killed[record.note] = record.at
    for run, (start, by) in starts.items():
        if run not in lost:
            end = ends.get(run, killed.get(by, records[-1].at))
            yield TimedRun(start / 1e9, max(start, end) / 1e9)


def _changes(runs: Sequence[TimedRun]) -> list[tuple[float, int]]:
    """Starts and ends in order; what ends at an instant makes room for what starts at it."""
    return sorted([(run.start, 1) for run in runs] + [(run.end, -1) for run in runs])


def _most_at_once(runs: Sequence[TimedRun]) -> int:
    most = now = 0
    for _, change in _changes(runs):
        now += change
        most = max(most, now)
    return most


def _mean_at_once(runs: Sequence[TimedRun]) -> float:
    """From a second after the first start until a second before the last: there was work all that time."""
    starts = sorted(run.start for run in runs)
    if not starts or starts[-1] - starts[0] <= 2:
        return 0.0
    first, last = starts[0] + 1, starts[-1] - 1
    busy = sum(max(0.0, min(run.end, last) - max(run.start, first)) for run in runs)
    return busy / (last - first)


def _curve(runs: Sequence[TimedRun]) -> list[tuple[float, float]]:
    """Runs at once, every tenth of a second."""
    changes = _changes(runs)
    if not changes:
        return []
    points, now, at = [], 0, changes[0][0]
    begin = at
    for when, change in changes:
        while at < when:
            points.append((round(at - begin, 1), float(now)))
            at += 0.1
        now += change
    return points


def _most_in_a_second(starts: Sequence[float]) -> int:
    most = first = 0
    for last, start in enumerate(starts):
        while start - starts[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most


def _per_second(starts: Sequence[float]) -> float:
    """Over the whole seconds from the first start on."""
    seconds = int(starts[-1] - starts[0]) if starts else 0
    return sum(start < starts[0] + seconds for start in starts) / seconds if seconds else 0.0
