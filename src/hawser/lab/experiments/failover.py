"""The primary dies and its synchronous standby takes over, again and again: is anything lost?

In PostgreSQL every commit waits for the standby. In Redis every write waits for one of two replicas, and a sentinel promotes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Final

import msgspec

from hawser.clock import SystemClock, at
from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import Job, State
from hawser.lab.checker import Verdict
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.findings import over_time, told
from hawser.lab.generator import MIXED, LoadPlan
from hawser.lab.journal import JournalRun, Record, Tail, What, read
from hawser.lab.load import all_jobs, percentile
from hawser.lab.replicated import Promotable, Replicated, made
from hawser.lab.store_under_test import StorePlace
from hawser.lab.trial import Trial, beside, surely, trial, under_load
from hawser.store import Filter, Store
from hawser.stores import make_store

BACK_WITHIN_S: Final = 10.0
"""Seconds after a promotion in which every worker process must have claimed or settled again."""

FAILOVER_LEASE_S: Final = 5.0
TIMEOUT: Final = 3.0
CONNECT_TIMEOUT: Final = 1.0
"""Seconds until a call, and one host, are given up: how long a frozen primary keeps those who speak to it."""

PARTED: Final = 0.3
"""Seconds between the end of replication and the end of the primary: what is answered meanwhile is on one disk."""

HUNG_S: Final = 1.0
"""Seconds for which writes are confirmed by one replica only, before the primary dies."""

UNDEAD: Final = 3.0
"""Seconds for which those who know of no other server write to an old primary that was thawed."""

LEFT_WITHIN: Final = 15.0
"""Seconds after that in which all sessions on it must have ended."""

STUCK_AFTER: Final = 10.0
"""Seconds after the last promotion at which no job may wait for long any more, or run with a lease that is over."""

WAITED_LONG_S: Final = 8.0
"""Seconds after which a job that may be claimed has waited for long. One whose lease is over has half of that: leases are looked
at every few seconds."""

BETWEEN_PROMOTIONS_S: Final = 1.0
"""Seconds between two promotions."""

GIVEN_UP: Final = 60.0
"""Seconds after which workers that are not back are not waited for any more."""

PROCESSES_PER_UNIT: Final = 2
"""Of each unit."""

NUMBERS: Final = {
    "promotions": Number(24, 2, "times that the standby takes over"),
    "zombie_every": Number(2, 2, "of so many promotions one while the old primary is frozen, and goes on later"),
    "hung": Number(4, 1, "promotions besides, on Redis, of one replica while the other hangs"),
    "rate": Number(150, 150, "jobs a second"),
}


async def run(lab: Lab) -> Finding:
    times, zombie_every, rate = int(lab.number("promotions")), int(lab.number("zombie_every")), lab.number("rate")
    in_redis = lab.place.kind == "redis"
    kinds = ["zombie" if number % zombie_every == 0 else "killed" for number in range(1, times + 1)]
    kinds += ["hung"] * int(lab.number("hung") if in_redis else 0)
    times = len(kinds)
    kept = await played(lab, kinds, rate, synchronous=True)
    lab.show("without a synchronous standby", 0, 2)
    bare = await played(lab, ["killed", "zombie"], rate, synchronous=False)
    broken = [*told(kept.verdict), *kept.amiss()]
    if in_redis and kept.announced < times:
        broken.append(f"{kept.announced} of {times} promotions were announced in the audit")
    if not bare.verdict.counts["lost"] > bare.zombie_acks > 0:
        broken.append("without a synchronous standby nothing was lost: this experiment could not have shown a failure")
    counts = kept.verdict.counts
    waited_for, killed = "the standby that every commit waits for", ""
    freed = f", whose waiting for a standby was cancelled {kept.waits_cancelled} times as an administrator may do"
    if in_redis:
        waited_for, freed = "one of the two replicas, one of which every write waits for (replicas=1),", ""
        killed = f"; {kinds.count('hung')} times so while the other replica hung, and came back afterwards"
    return Finding(
        broken=broken,
        figures={
            "promotions": times,
            "of_them_with_a_zombie": kinds.count("zombie"),
            "of_them_with_a_hung_replica": kinds.count("hung"),
            "back_s_median": round(percentile(kept.back, 0.5), 2),
            "back_s_max": round(max(kept.back), 2),
            "back_s": [round(seconds, 2) for seconds in kept.back],
            "zombie_writes_tried": kept.zombie_tries,
            "zombie_waits_cancelled": kept.waits_cancelled,
            "zombie_acks": kept.zombie_acks,
            "zombie_sessions_most": max(kept.zombie_sessions_most, default=0),
            "zombie_sessions_left": max(kept.zombie_sessions_left, default=0),
            "stuck": len(kept.stuck),
            "drained_in_s": kept.drained_in,
            **({"announced": kept.announced} if in_redis else {}),
            **counts,
            "without_synchronous_standby": {
                "promotions": 2,
                "accepted": bare.verdict.counts["accepted"],
                "lost": bare.verdict.counts["lost"],
                "zombie_acks": bare.zombie_acks,
            },
        },
        settings={
            "rate": rate,
            "lease": FAILOVER_LEASE_S,
            "timeout": TIMEOUT,
            "connect_timeout": CONNECT_TIMEOUT,
            "units": 2,
            "fsync": "off" if lab.quick else "on",
            "processes_per_unit": PROCESSES_PER_UNIT,
            "replication_ends_before_primary_s": PARTED,
            "between_promotion_and_new_standby": "the primary answers alone",
        },
        text=(
            f"{times} times {waited_for} was promoted under {rate:g} mixed jobs/s:"
            f" {kinds.count('killed')} times after all processes of the primary were killed with -9, {PARTED:g} s after it had"
            f" lost its link{killed}; {kinds.count('zombie')} times while it was frozen and later went on."
            f" {counts['accepted']:,} jobs were accepted, {counts['lost']} are lost, {counts['settled_twice']} settled twice. All"
            f" worker processes were back after {percentile(kept.back, 0.5):.1f} s, {max(kept.back):.1f} s at most."
            f" {kept.zombie_tries} writes were tried on zombies{freed}; {kept.zombie_acks} were taken for accepted."
            f" Sessions left on a zombie {UNDEAD + LEFT_WITHIN:g} s after it"
            f" was thawed: {max(kept.zombie_sessions_left, default=0)}. Jobs stuck {STUCK_AFTER:g} s after the last promotion:"
            f" {len(kept.stuck)}."
            f" The same without a synchronous standby lost {bare.verdict.counts['lost']} of"
            f" {bare.verdict.counts['accepted']:,} jobs in two promotions."
        ),
        plot=over_time("Promotions of a synchronous standby", kept.records),
    )


class Played(msgspec.Struct, kw_only=True):
    """What came of a row of promotions."""

    verdict: Verdict
    records: list[Record]
    back: list[float]
    """Seconds after each promotion until the last worker process had claimed or settled."""
    zombie_tries: int
    zombie_acks: int
    waits_cancelled: int
    zombie_sessions_most: list[int]
    zombie_sessions_left: list[int]
    """Of each zombie: the sessions that were on it at the most, and when we had waited for them to end."""
    stuck: list[str]
    """Jobs that no worker had claimed in time after the last promotion."""
    drained_in: float | None
    announced: int
    """Audit records by which the store says that a replica was promoted; of Redis, as PostgreSQL cannot know."""

    def amiss(self) -> list[str]:
        """What did not hold besides the verdict of the checker."""
        found = []
        if late := [seconds for seconds in self.back if seconds > BACK_WITHIN_S]:
            found.append(f"after {len(late)} promotions workers took longer than {BACK_WITHIN_S:g} s, up to {max(late):.1f} s")
        if self.zombie_acks:
            found.append(f"{self.zombie_acks} writes were accepted by a primary that had been replaced")
        if left := [sessions for sessions in self.zombie_sessions_left if sessions]:
            found.append(f"on {len(left)} primaries that had been replaced sessions were left, up to {max(left)}")
        if self.stuck:
            found.append(
                f"{len(self.stuck)} jobs were stuck {STUCK_AFTER:g} s after the last promotion: {'; '.join(self.stuck[:5])}"
            )
        if not self.zombie_tries:
            found.append("no write was tried on a zombie, so nothing is proven about them; ask with --set zombie_every=1")
        return found


async def played(lab: Lab, kinds: Sequence[str], rate: float, *, synchronous: bool) -> Played:
    """Make these promotions under load, one after the other."""
    # Processes die here, not machines: what they wrote is with the kernel, so a quick run need not wait for the disk.
    durability = "relaxed" if lab.quick else "durable"
    pair = made(lab.place, fsync=not lab.quick, synchronous=synchronous)
    await beside(pair.__enter__)
    try:
        place = StorePlace(lab.place.kind, pair.url)
        async with place.fresh(timeout=TIMEOUT, connect_timeout=CONNECT_TIMEOUT, durability=durability) as (url, store):
            async with trial(lab, url, store, processes=PROCESSES_PER_UNIT, lease=FAILOVER_LEASE_S) as found:
                promotions = Promotions(found, pair)
                async with under_load(found, rate=rate, mix=MIXED):
                    await promotions.everyone_at_work(time.monotonic_ns())
                    for number, kind in enumerate(kinds):
                        lab.show("promotions", number, len(kinds))
                        await promotions.one(kind)
                    await promotions.look_for_stuck()
            verdict = await found.verdict()
            records = read(found.folder / "journal")
            announced = len(await surely(lambda: store.audit(1_000, action="failover")))
        return Played(
            verdict=verdict,
            records=records,
            back=promotions.back,
            zombie_tries=promotions.zombie_tries,
            zombie_acks=promotions.zombie_acks,
            waits_cancelled=promotions.waits_cancelled,
            zombie_sessions_most=promotions.zombie_sessions_most,
            zombie_sessions_left=promotions.zombie_sessions_left,
            stuck=promotions.stuck,
            drained_in=found.drained_in,
            announced=announced,
        )
    finally:
        await beside(pair.remove)


class Promotions:
    """Makes them, one after the other, and sees when the workers are back."""

    def __init__(self, found: Trial, pair: Replicated) -> None:
        self._found = found
        self._pair = pair
        self._tail = Tail(found.folder / "journal")
        self._load = LoadPlan(found.lab.seed + 1, {"fast": 1})
        self.back: list[float] = []
        self.zombie_tries = 0
        self.zombie_acks = 0
        self.waits_cancelled = 0
        self.zombie_sessions_most: list[int] = []
        self.zombie_sessions_left: list[int] = []
        self.stuck: list[str] = []
        self._promoted = 0.0

    async def one(self, kind: str) -> None:
        """One promotion; when this returns there is a new standby, and a moment of quiet has passed."""
        self._found.fault(kind)
        if kind == "zombie":
            await self._with_a_zombie()
        else:
            if kind == "hung":
                await beside(self._pair.freeze_a_replica)
                await asyncio.sleep(HUNG_S)
            else:
                await beside(self._pair.part)
                await asyncio.sleep(PARTED)
            await beside(self._pair.primary.crash)
            await beside(self._pair.promote)
            await self._await_back()
        await beside(self._pair.rebuild)
        await asyncio.sleep(BETWEEN_PROMOTIONS_S)

    async def _with_a_zombie(self) -> None:
        async with self._writers(self._pair.primary) as writers:
            await beside(self._pair.primary.freeze)
            old = await beside(self._pair.promote)
            await self._await_back()
            await beside(old.thaw)
            end = time.monotonic() + UNDEAD
            await asyncio.gather(self._cancel_waits(old, end), *(self._write(writer, end) for writer in writers))
        await self._await_left(old)
        await beside(old.crash)

    async def _await_left(self, zombie: Promotable) -> None:
        """Wait until no session is left on the old primary."""
        end, most = time.monotonic() + LEFT_WITHIN, 0
        while True:
            sessions = await beside(lambda: self._pair.sessions(zombie))
            most = max(most, sessions)
            if not sessions or time.monotonic() > end:
                break
            await asyncio.sleep(0.5)
        self.zombie_sessions_most.append(most)
        self.zombie_sessions_left.append(sessions)

    async def look_for_stuck(self) -> None:
        """What should have been taken up since the last promotion, and was not."""
        await asyncio.sleep(max(0.0, self._promoted + STUCK_AFTER - time.monotonic()))
        now = at(SystemClock().now())
        for state in (State.READY, State.RUNNING):
            async for job in all_jobs(self._found.store, Filter(state=state)):
                if (waits := overdue(job, now)) is not None:
                    self.stuck.append(f"{job.id} {state.value} for {waits:.1f} s too long")

    @asynccontextmanager
    async def _writers(self, primary: Promotable) -> AsyncIterator[list[Store]]:
        """Some that know of this server only, and had reached it while it was in order."""
        url = self._pair.direct(primary, self._found.url)
        async with AsyncExitStack() as stack:
            writers = []
            for _ in range(4):
                writers.append(make_store(url))
                stack.push_async_callback(writers[-1].close)
                await surely(writers[-1].open)
            yield writers

    async def _write(self, writer: Store, end: float) -> None:
        while time.monotonic() < end:
            jobs = self._load.take(1)
            runs = [JournalRun(job.id) for job in jobs]
            self._found.journal.write(What.ENQUEUE, runs)
            self.zombie_tries += 1
            try:
                await writer.enqueue(jobs)
            except OutcomeUnknown:
                self._found.journal.write(What.UNKNOWN, runs)
            except StoreUnavailable:
                self._found.journal.write(What.REFUSED, runs)
            else:
                self._found.journal.write(What.ACCEPTED, runs)
                self.zombie_acks += 1
            await asyncio.sleep(0.01)

    async def _cancel_waits(self, zombie: Promotable, end: float) -> None:
        while time.monotonic() < end:
            await asyncio.sleep(0.2)
            self.waits_cancelled += await beside(lambda: self._pair.cancel_waits(zombie))

    async def _await_back(self) -> None:
        promoted = time.monotonic_ns()
        self._promoted = time.monotonic()
        self.back.append((await self.everyone_at_work(promoted) - promoted) / 1e9)

    async def everyone_at_work(self, since: int) -> int:
        """Wait until every worker process has claimed or settled; when the last of them did, on the journal's clock."""
        first: dict[str, int] = {}
        end = time.monotonic() + GIVEN_UP
        while len(first) < PROCESSES_PER_UNIT * len(self._found.units):
            if time.monotonic() > end:
                return time.monotonic_ns()
            await asyncio.sleep(0.05)
            for record in await beside(self._tail.read):
                if record.at > since and record.what in (What.CLAIMED, What.SETTLED):
                    first.setdefault(record.by, record.at)
        return max(first.values())


def overdue(job: Job, now: datetime) -> float | None:
    """Seconds since a job should have been claimed, or since its lease was over; None if no job is late."""
    if job.state is State.RUNNING:
        late = (now - job.lease_until).total_seconds() if job.lease_until is not None else 0.0
        return late if late > WAITED_LONG_S / 2 else None
    late = (now - job.run_at).total_seconds()
    return late if late > WAITED_LONG_S else None
