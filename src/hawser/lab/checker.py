"""Judges a run: the journal of what was seen from outside against what the store says in the end.

Stricter than asking for lost and unexpected jobs alone: nothing is settled twice, no stale write is accepted, no two leases
stand at once, attempts are counted right, nothing is dead that was never started, nothing is stuck, a tick fires once, a key
has one job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

import msgspec

from hawser.job import Attempt, Job, State
from hawser.lab.journal import JournalRun, Record, What
from hawser.outcome import MAY_NOT_HAVE_BEGUN

FINAL: Final = frozenset(state.value for state in State if state.finished)
"""Outcomes after which nothing follows."""

TICK_SLACK: Final = timedelta(seconds=15)
"""How late the first tick may be, and how early the last: workers start, stand still, and catch up."""

EXAMPLES_SHOWN: Final = 5
"""Examples of a violation that a verdict names."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is judged by, besides the journal."""

    dead: frozenset[str] = frozenset()
    """Tasks all of whose jobs must be dead in the end; jobs of others must be done."""
    either: frozenset[str] = frozenset()
    """Tasks whose jobs have one attempt: done, or dead when that was begun and lost."""
    drained_at: datetime | None = None
    """When nothing waited and nothing ran any more. Jobs that came later, of a schedule, may still wait."""
    ticks: Mapping[str, timedelta] = {}
    """How far apart the ticks of each schedule are; each of them must have its job."""
    since: datetime | None = None
    """When the schedules were there at the latest."""
    effects: frozenset[str] = frozenset()
    """Tasks whose jobs, when done, must have left an effect in the sink."""
    zero: datetime | None = None
    """What the store's clock showed when that of the journal stood at zero, as far as it is known."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found wrong, by kind, with examples; and what was counted on the way."""

    violations: dict[str, list[str]]
    counts: dict[str, int]
    dead_not_known_by: dict[str, int] = {}
    """The dead jobs of which it is not known whether they were started, by the fault nearest to their last claim."""

    @property
    def held(self) -> bool:
        return not self.violations


def check(
    records: Sequence[Record],
    jobs: Mapping[str, Job],
    expected: Expected,
    effects: Mapping[str, int] | None = None,
    stale_extensions: int = 0,
) -> Verdict:
    """Judge. `jobs` is all that the store holds in the end, `effects` all that the sink holds.

    `stale_extensions` are those that the store refused, by its own count. They do no harm.
    """
    seen = _JournalSeen(records)
    found: dict[str, list[str]] = defaultdict(list)
    _of_the_whole(seen, jobs, expected, effects or {}, found)
    for job in jobs.values():
        _of_one(job, seen, expected, found)
    dead_not_known = [job for job in jobs.values() if _dead_not_known(job, seen)]
    counts = {
        "invoked": len(seen.invoked),
        "accepted": len(seen.accepted),
        "unknown": len(seen.unknown),
        "recovered": len(seen.unknown & jobs.keys()),
        "done": sum(job.state is State.DONE for job in jobs.values()),
        "dead": sum(job.state is State.DEAD for job in jobs.values()),
        "dead_never_started": len(found["dead, never started"]),
        "dead_not_known": len(dead_not_known),
        "not_known_whether_begun": sum(len(_not_known(job, seen)) for job in jobs.values()),
        "claimed_ahead": sum(_claimed_ahead(job, seen, expected.zero) for job in jobs.values()),
        "lost": len(found["lost"]),
        "starts": sum(len(starts) for starts in seen.starts.values()),
        "redelivered": sum(job.crashes for job in jobs.values()),
        "stale_refused": seen.of[What.STALE],
        "stale_extensions_refused": stale_extensions,
        "stale_effects_refused": seen.of[What.STALE_EFFECT],
        "stale_accepted": len(found["stale accepted"]),
        "settled_twice": len(found["settled twice"]),
        "faults": seen.of[What.FAULT],
    }
    violations = {kind: [f"{len(each)} in all", *each[:EXAMPLES_SHOWN]] for kind, each in found.items() if each}
    by = Counter(seen.fault_near(job.attempts[-1].started_at, expected.zero) for job in dead_not_known)
    return Verdict(violations=violations, counts=counts, dead_not_known_by=dict(by.most_common()))


class _JournalSeen:
    """The journal, sorted by what the questions need."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.invoked: set[str] = set()
        self.accepted: set[str] = set()
        self.refused: set[str] = set()
        self.keys: dict[str, set[str]] = defaultdict(set)
        self.claims: dict[str, list[tuple[int, JournalRun]]] = defaultdict(list)
        self.starts: dict[str, list[tuple[int, JournalRun]]] = defaultdict(list)
        self.settles: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.settled: dict[str, list[tuple[int, JournalRun, str]]] = defaultdict(list)
        self.of: Counter[What] = Counter()
        self.faults = [(record.at, record.note) for record in records if record.what is What.FAULT]
        for record in records:
            self.of[record.what] += max(1, len(record.runs))
            self._note_enqueue(record)
            self._note_run(record)
        self.unknown = self.invoked - self.accepted - self.refused

    def _note_enqueue(self, record: Record) -> None:
        ids = {run.id for run in record.runs}
        match record.what:
            case What.ENQUEUE:
                self.invoked |= ids
                # Asked again after a refusal: it may have come in after all.
                self.refused -= ids
            case What.ACCEPTED:
                self.accepted |= ids
                if record.note:
                    self.keys[record.note] |= ids
            case What.REFUSED | What.DUPLICATE:
                self.refused |= ids

    def _note_run(self, record: Record) -> None:
        match record.what:
            case What.CLAIMED:
                _add(self.claims, record)
            case What.START:
                _add(self.starts, record)
            case What.SETTLE:
                for run in record.runs:
                    self.settles[run.id, run.lease].append(record.at)
            case What.SETTLED:
                for run in record.runs:
                    self.settled[run.id].append((record.at, run, record.note))

    def invoked_at(self, run: JournalRun, answered: int) -> int:
        """When the write was begun that was answered then; the answer's own time where no beginning was seen."""
        return max((at for at in self.settles[run.id, run.lease] if at <= answered), default=answered)

    def fault_near(self, when: datetime, zero: datetime | None) -> str:
        """The fault that was made nearest to that moment of the store's clock."""
        if zero is None or not self.faults:
            return "no fault"
        at = (when - zero).total_seconds() * 1e9
        return min(self.faults, key=lambda fault: abs(fault[0] - at))[1]


def _add(by_job: dict[str, list[tuple[int, JournalRun]]], record: Record) -> None:
    for run in record.runs:
        by_job[run.id].append((record.at, run))


def _of_the_whole(
    seen: _JournalSeen, jobs: Mapping[str, Job], expected: Expected, effects: Mapping[str, int], found: dict[str, list[str]]
) -> None:
    found["lost"] += [f"{id} was accepted and is not there" for id in sorted(seen.accepted - jobs.keys())]
    fired = {id for id, job in jobs.items() if job.schedule is not None}
    known = (jobs.keys() | seen.starts.keys()) - fired
    found["unexpected"] += [f"{id} is there and no producer enqueued it" for id in sorted(known - seen.invoked)]
    found["refused but there"] += [f"{id} was refused and is there" for id in sorted(seen.refused & jobs.keys())]
    found["duplicate key"] += [f"{key} has the jobs {', '.join(sorted(ids))}" for key, ids in seen.keys.items() if len(ids) > 1]
    found["tick"] += list(_ticks(jobs, expected))
    found["stuck"] += [f"{job.id} is {job.state}" for job in jobs.values() if _stuck(job, expected.drained_at)]
    for job in jobs.values():
        if job.task in expected.effects and job.state is State.DONE and job.id not in effects:
            found["done without effect"].append(job.id)


def _stuck(job: Job, drained_at: datetime | None) -> bool:
    return not job.state.finished and (drained_at is None or job.enqueued_at < drained_at)


def _ticks(jobs: Mapping[str, Job], expected: Expected) -> Iterable[str]:
    """Each tick of a schedule has one job, from soon after the schedule was there until all was drained."""
    made = Counter((job.schedule, job.tick) for job in jobs.values() if job.schedule is not None and job.tick is not None)
    yield from (f"{name} at {tick} fired {times} times" for (name, tick), times in made.items() if times > 1)
    for schedule, step in expected.ticks.items():
        ticks = sorted(tick for name, tick in made if name == schedule and tick is not None)
        if not ticks:
            yield f"{schedule} never fired"
            continue
        yield from (f"{schedule} left out ticks after {first}" for first, second in pairwise(ticks) if second - first != step)
        if expected.since is not None and ticks[0] > expected.since + TICK_SLACK:
            yield f"{schedule} fired first at {ticks[0]}"
        if expected.drained_at is not None and ticks[-1] < expected.drained_at - TICK_SLACK:
            yield f"{schedule} fired last at {ticks[-1]}, long before the end"


def _of_one(job: Job, seen: _JournalSeen, expected: Expected, found: dict[str, list[str]]) -> None:
    found["settled twice"] += list(_twice(job.id, seen))
    found["stale accepted"] += list(_stale(job.id, seen))
    found["overlap"] += list(_overlaps(job))
    found["attempts"] += list(_miscounted(job, seen))
    if job.state is State.DEAD and not seen.starts[job.id] and not _dead_not_known(job, seen):
        found["dead, never started"].append(f"{job.task} {job.id}: {job.errors[-1] if job.errors else 'no error'}")
    if job.state.finished:
        right = {State.DEAD if job.task in expected.dead else State.DONE}
        if job.task in expected.either:
            right.add(State.DEAD)
        if job.state not in right:
            why = f": {job.errors[-1]}" if job.errors else ""
            found["wrong end"].append(f"{job.task} {job.id} is {job.state}{why}")


def _dead_not_known(job: Job, seen: _JournalSeen) -> bool:
    """Whether the job is dead, the journal has no start of it, and its record says that it is not known whether it began."""
    return job.state is State.DEAD and not seen.starts[job.id] and bool(_not_known(job, seen))


def _not_known(job: Job, seen: _JournalSeen) -> list[Attempt]:
    """Attempts of which the store says that it does not know whether they began, and the journal has no start."""
    begun = {run.lease for _, run in seen.starts[job.id]}
    return [each for each in job.attempts if each.lease not in begun and MAY_NOT_HAVE_BEGUN in (each.error or "")]


def _claimed_ahead(job: Job, seen: _JournalSeen, zero: datetime | None) -> int:
    """Attempts of these whose worker process had the claim's answer before the lease was over: it should have started them.

    A job that was lost before is left out: it waits for a process of its own to begin, or is put aside until there is one.
    """
    told: dict[int, int] = {}
    for claimed, run in seen.claims[job.id]:
        told.setdefault(run.lease, claimed)
    lost = min((each.lease for each in job.attempts if each.outcome == "lost"), default=0)
    return sum(
        zero is not None
        and each.ended_at is not None
        and each.lease == lost
        and each.lease in told
        and zero + timedelta(microseconds=told[each.lease] / 1000) < each.ended_at
        for each in _not_known(job, seen)
    )


def _twice(id: str, seen: _JournalSeen) -> Iterable[str]:
    """Outcomes accepted twice for one lease, or a second end of the whole job."""
    leases = Counter(run.lease for _, run, _ in seen.settled[id])
    yield from (f"{id}: lease {lease} was settled {times} times" for lease, times in leases.items() if times > 1)
    ends = [outcome for _, _, outcome in seen.settled[id] if outcome in FINAL]
    if len(ends) > 1:
        yield f"{id} ended {len(ends)} times: {', '.join(ends)}"


def _stale(id: str, seen: _JournalSeen) -> Iterable[str]:
    """Outcomes accepted from a lease although a later one had been given out before the write was begun. After an outcome that
    ends the job no lease is given at all: then a later one, whenever it came, says that the outcome was stale."""
    for at, run, outcome in seen.settled[id]:
        begun = float("inf") if outcome in FINAL else seen.invoked_at(run, at)
        later = [claim.lease for claimed, claim in seen.claims[id] if claim.lease > run.lease and claimed < begun]
        if later:
            yield f"{id}: {outcome} was taken from lease {run.lease} although lease {max(later)} was given"


def _overlaps(job: Job) -> Iterable[str]:
    """By the store's own clock: a lease is given only after the one before has ended."""
    for first, second in pairwise(sorted(job.attempts, key=lambda attempt: attempt.lease)):
        if first.ended_at is None or second.started_at < first.ended_at:
            yield f"{job.id}: leases {first.lease} and {second.lease} stood at once"


def _miscounted(job: Job, seen: _JournalSeen) -> Iterable[str]:
    if job.attempt > job.max_attempts:
        yield f"{job.id} was started {job.attempt} times of {job.max_attempts}"
    begun = len({run.lease for _, run in seen.starts[job.id]})
    # A start that was handed back is not counted by the store; one that was killed before its record is not in the journal.
    if begun > job.attempt + job.returned:
        yield f"{job.id} was started {begun} times; the store counts {job.attempt}, and {job.returned} handed back"
    numbers = [attempt.number for attempt in job.attempts]
    if job.state is State.DEAD and not job.returned and numbers != list(range(1, job.max_attempts + 1)):
        yield f"{job.id} is dead after the attempts {numbers}, not after 1 to {job.max_attempts}"
