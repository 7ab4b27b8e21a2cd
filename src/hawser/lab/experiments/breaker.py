"""A dependency is down, with a breaker and without one: what is tried in vain, and when does it go on?"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from math import ceil, floor
from typing import Final, NamedTuple

import msgspec

from hawser.breaker import Breaker
from hawser.clock import SystemClock
from hawser.errors import StoreUnavailable
from hawser.job import Job, NewJob, State
from hawser.lab.app import BREAKER
from hawser.lab.bottleneck import metered
from hawser.lab.dependency import ADDRESS, Dependency
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.load import Crew, Pump, all_jobs, workers
from hawser.lab.plot import Band, Line, Plot
from hawser.lab.process_tree import children, send
from hawser.store import Filter, QueueStats, Store
from hawser.upkeep.breaker import MINUTE_S

AFTERWARDS_S: Final = 2.0
"""Seconds that the load goes on after the dependency is back."""

JUST: Final = 0.5
"""Seconds after the breaker opened: a claim that was under way then may be dated by another process's clock."""

DONE_WITHIN_S: Final = 60.0
"""Seconds after the dependency is back in which all jobs must be done: far more than they need, on a busy machine, too."""

OPENS_WITHIN_S: Final = 3.0
QUICK_OPENS_WITHIN_S: Final = 30.0
"""Seconds after the share of failures is passed in which the breaker opens. The quick form runs beside other work."""

OPENS_AT_ALL_WITHIN_S: Final = 60.0
"""Seconds for which the dependency stays down until the breaker opens."""

PROBES_TO_CLOSE: Final = 1
"""Probes after the dependency is back until it closes."""

QUICK_PROBES_TO_CLOSE: Final = 10
"""In the quick form a probe is due as often as the breaker is judged."""

OTHERS_BAR: Final = 0.98
"""The part of the jobs that do not need the dependency which are done as they come while it is down."""

SLOTS_OF_ALL: Final = 64
"""The same for any number of processes: so many attempts may be under way when the breaker opens."""

KILLED_AT: Final = 1 / 3
"""The part of that time after which a worker process is killed: what was decided of the breaker must outlive it."""

NUMBERS: Final = {
    "seconds": Number(60, 8, "seconds that the dependency is down"),
    "calm": Number(10, 2, "seconds before it goes down"),
    "probe_every": Number(10, 2, "seconds between two probes"),
    "processes": Number(8, 2, "worker processes"),
    "rate": Number(40, 20, "jobs a second that need the dependency, and as many that do not"),
}


class BreakerRun(NamedTuple):
    """What was seen in one part, by the store's clock in seconds."""

    needing: list[Job]
    others: list[Job]
    down: float
    up: float
    opened: float | None
    closed: float | None
    cpu_s: float

    @property
    def in_vain(self) -> int:
        """Attempts that failed."""
        return sum(job.attempt - (job.state is State.DONE) for job in self.needing)

    def starts(self, after: float, until: float) -> int:
        """Starts of jobs that need the dependency. Only of the part with a breaker: a job keeps its last hundred attempts."""
        return sum(after < attempt.started_at.timestamp() <= until for job in self.needing for attempt in job.attempts)

    @property
    def in_vain_per_s(self) -> float:
        """Attempts that failed, a second that the dependency was down."""
        return self.in_vain / (self.up - self.down)


async def run(lab: Lab) -> Finding:
    away, every, rate = lab.number("seconds"), lab.number("probe_every"), lab.number("rate")
    rule = Breaker(share=0.8, window=60, least=10, probe_every=every)
    without, with_ = await _part(lab, None), await _part(lab, rule)
    broken = [f"{_undone(part)} jobs were not done" for part in (without, with_) if _undone(part)]
    probes = allowed = after_up = 0
    if with_.opened is None or with_.closed is None:
        broken.append("the breaker never opened" if with_.opened is None else "the breaker never closed")
    else:
        probes = with_.starts(with_.opened + JUST, with_.closed)
        allowed = floor((with_.closed - with_.opened) / every) + 1
        after_up = with_.starts(max(with_.up, with_.opened + JUST), with_.closed)
        if probes > allowed:
            broken.append(f"{probes} jobs started while it was open; one every {every:g} s is {allowed}")
        if after_up > (QUICK_PROBES_TO_CLOSE if lab.quick else PROBES_TO_CLOSE):
            broken.append(f"{after_up} probes were let through after the dependency was back; the bar is {PROBES_TO_CLOSE}")
    passed = share_passed(with_.needing, rule, with_.down)
    opened_after = None if with_.opened is None or passed is None else round(with_.opened - passed, 2)
    within = QUICK_OPENS_WITHIN_S if lab.quick else OPENS_WITHIN_S
    if with_.opened is not None and passed is None:
        broken.append(f"it opened although {rule.share:.0%} of the attempts had not failed")
    if opened_after is not None and opened_after > within:
        broken.append(f"it opened {opened_after} s after {rule.share:.0%} had failed; the bar is {within:g} s")
    if with_.in_vain_per_s >= without.in_vain_per_s:
        broken.append(f"{with_.in_vain} attempts were made in vain with the breaker, {without.in_vain} without it")
    before = lab.number("calm")
    calm, meanwhile = _rate(with_.others, with_.down - before, with_.down), _rate(with_.others, with_.down, with_.up)
    share = kept_up(with_.others, with_.down, with_.up)
    if not lab.quick and share < OTHERS_BAR:
        broken.append(f"of the others that came while it was down {share:.1%} were done meanwhile; the bar is {OTHERS_BAR:.0%}")
    opened_in = None if with_.opened is None else round(with_.opened - with_.down, 2)
    closed_in = None if with_.closed is None else round(with_.closed - with_.up, 2)
    return Finding(
        broken=broken,
        figures={
            "attempts_in_vain": with_.in_vain,
            "attempts_in_vain_without": without.in_vain,
            "probes": probes,
            "probes_after_it_was_back": after_up,
            "opened_in_s": opened_in,
            "opened_after_the_share_was_passed_s": opened_after,
            "closed_in_s": closed_in,
            "others_per_s_before": round(calm, 1),
            "others_per_s_meanwhile": round(meanwhile, 1),
            "others_done_as_they_came": round(share, 4),
            "cpu_s": round(with_.cpu_s, 2),
            "cpu_s_without": round(without.cpu_s, 2),
            "needing": len(with_.needing),
        },
        settings={
            "processes": int(lab.number("processes")),
            "seconds_down": away,
            "probe_every": every,
            "rate": rate,
            "share": rule.share,
            "least": rule.least,
        },
        text=(
            f"A dependency of {rate:g} jobs/s was down for {away:g} s. Without a breaker {without.in_vain} attempts were made in"
            f" vain, with one {with_.in_vain}: it opened {opened_in} s after the dependency went down, {opened_after} s after the"
            f" share of failures was passed, let {probes} jobs through"
            f" while it was open, and closed {closed_in} s after it was back. CPU of all processes: {with_.cpu_s:.1f} s, without"
            f" {without.cpu_s:.1f} s. Jobs that do not need it ran at {meanwhile:.0f}/s meanwhile ({calm:.0f}/s before):"
            f" {share:.1%} of those that came were done as they came. A worker process was killed meanwhile."
        ),
        plot=Plot(
            title="Starts of jobs that need a dependency which is down",
            x="seconds",
            lines=[Line("with a breaker, per s", _by_second(with_, before)), Line("without, per s", _by_second(without, before))],
            bands=[Band(before, before + with_.up - with_.down, "the dependency is down")],
        ),
    )


async def _part(lab: Lab, rule: Breaker | None) -> BreakerRun:
    away, rate, processes = lab.number("seconds"), lab.number("rate"), int(lab.number("processes"))
    slots = SLOTS_OF_ALL // processes
    dice = random.Random(lab.seed)  # noqa: S311  # a run that can be repeated
    said = {} if rule is None else {BREAKER: msgspec.json.encode(rule).decode()}
    tries = int((away + DONE_WITHIN_S) / 0.2)

    def some(count: int) -> list[NewJob]:
        tasks = dice.choices([("flapping", b'{"seq":0}'), ("fast", b'{"seq":0,"ms":5}')], k=count)
        return [NewJob(task=task, body=body, max_attempts=tries) for task, body in tasks]

    with Dependency() as dependency:
        async with lab.place.fresh() as (url, store):
            environ = {ADDRESS: str(dependency.port), **said}
            with workers(url, lab.folder, processes=processes, slots=slots, claim_batch=16, environ=environ) as crew:
                watch = _Watch(store, crew, lab)
                async with metered(lab.place, url) as meter, Pump(store, 2 * rate, some):
                    await watch.begun()
                    await watch.go_on(lab.number("calm"))
                    dependency.down()
                    down = SystemClock().now() / 1e6
                    await watch.go_on(KILLED_AT * away)
                    send([dice.choice(children(crew.process.pid))], signal.SIGKILL)
                    await watch.go_on((1 - KILLED_AT) * away)
                    if rule is not None:
                        await watch.until_open()
                    dependency.up()
                    up = SystemClock().now() / 1e6
                    await watch.go_on(AFTERWARDS_S)
                cpu_s = meter.require().cpu_s
                await watch.settled(breaker=rule is not None)
            jobs = [job async for job in all_jobs(store, Filter())]
    needing = [job for job in jobs if job.task == "flapping"]
    return BreakerRun(needing, [job for job in jobs if job.task == "fast"], down, up, watch.opened, watch.closed, cpu_s)


class _Watch:
    """Looks at the breaker while the load goes on."""

    def __init__(self, store: Store, crew: Crew, lab: Lab) -> None:
        self._store = store
        self._crew = crew
        self._lab = lab
        self.opened: float | None = None
        self.closed: float | None = None

    async def begun(self) -> None:
        """Starting processes is no part of it."""
        while not (await self._store.stats()).done:
            await self._look()

    async def go_on(self, seconds: float) -> None:
        began = time.monotonic()
        while (gone := time.monotonic() - began) < seconds:
            self._lab.show("seconds", int(gone), int(seconds))
            await self._look()

    async def until_open(self) -> None:
        """Until the breaker has opened, or patience is over: on a busy machine that takes longer than a short outage."""
        began = time.monotonic()
        while self.opened is None and time.monotonic() - began < OPENS_AT_ALL_WITHIN_S:
            await self._look()

    async def settled(self, *, breaker: bool) -> None:
        """Until all jobs are done and the breaker is closed, or patience is over."""
        began = time.monotonic()
        while time.monotonic() - began < DONE_WITHIN_S:
            await self._look()
            stats = await self._store.stats()
            closed = not breaker or self.opened is None or self.closed is not None
            if closed and all_ended(stats):
                return

    async def _look(self) -> None:
        if not self._crew.lives:
            raise StoreUnavailable(f"the workers have ended; they said:\n{self._crew.last_words()}")
        for status in await self._store.breakers():
            if status.open and self.opened is None:
                self.opened = status.since.timestamp()
            elif not status.open and self.opened is not None and self.closed is None:
                self.closed = status.since.timestamp()
        await asyncio.sleep(0.1)


def all_ended(stats: QueueStats) -> bool:
    """Whether nothing waits any more, be it for another attempt, and nothing runs."""
    return not (stats.ready or stats.scheduled or stats.retrying or stats.held or stats.running)


def share_passed(jobs: Sequence[Job], rule: Breaker, down: float) -> float | None:
    """When the share of failed attempts was passed, by their ends; None if it never was. A breaker counts whole minutes, at least
    those of its window."""
    ends = sorted(
        (attempt.ended_at.timestamp(), attempt.outcome != "done") for job in jobs for attempt in job.attempts if attempt.ended_at
    )
    minutes = ceil(rule.window / MINUTE_S)
    ended: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    for at, in_vain in ends:
        minute = int(at / MINUTE_S)
        ended[minute] += 1
        failed[minute] += in_vain
        counted = range(minute - minutes, minute + 1)
        all_, vain = sum(ended[each] for each in counted), sum(failed[each] for each in counted)
        if at >= down and all_ >= rule.least and vain >= rule.share * all_:
            return at
    return None


def _undone(part: BreakerRun) -> int:
    return sum(job.state is not State.DONE for job in (*part.needing, *part.others))


def _rate(jobs: Sequence[Job], start: float, end: float) -> float:
    ends = (job.finished_at.timestamp() for job in jobs if job.finished_at is not None)
    return sum(start <= each < end for each in ends) / (end - start)


def kept_up(jobs: Sequence[Job], start: float, end: float) -> float:
    """The part of the jobs that came in a time which were done in it; those of its last second have a second more."""
    came = [job for job in jobs if start <= job.enqueued_at.timestamp() < end]
    done = sum(job.finished_at is not None and job.finished_at.timestamp() < end + 1 for job in came)
    return done / len(came) if came else 0.0


def _by_second(part: BreakerRun, before: float) -> list[tuple[float, float]]:
    began = part.down - before
    starts = [int(attempt.started_at.timestamp() - began) for job in part.needing for attempt in job.attempts]
    seconds = int(part.up - began) + 5
    return [(float(second), float(starts.count(second))) for second in range(seconds)]
