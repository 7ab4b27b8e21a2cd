"""The primary dies and its synchronous standby takes over, again and again: is anything lost?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from hawser.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from hawser.lab.checker import Verdict
from hawser.lab.cluster import Cluster
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.findings import over_time, told
from hawser.lab.generator import MIXED, Load
from hawser.lab.journal import Record, Run, Tail, What, read
from hawser.lab.load import percentile
from hawser.lab.pair import Pair
from hawser.lab.place import Place, address
from hawser.lab.trial import Trial, beside, trial, under_load
from hawser.store import Store
from hawser.stores import make_store

BACK_WITHIN: Final = 10.0
"""Seconds after a promotion in which every worker process must have claimed or settled again."""

LEASE: Final = 5.0
TIMEOUT: Final = 3.0
CONNECT_TIMEOUT: Final = 1.0
"""Seconds until a call, and one host, are given up: how long a frozen primary keeps those who speak to it."""

PARTED: Final = 0.3
"""Seconds between the end of replication and the end of the primary: what is answered meanwhile is on one disk."""

UNDEAD: Final = 3.0
"""Seconds that an old primary goes on after another was promoted."""

CALM: Final = 1.0
"""Seconds between two promotions."""

GIVEN_UP: Final = 60.0
"""Seconds after which workers that are not back are not waited for any more."""

PROCESSES: Final = 2
"""Of each ship."""

CANCEL: Final = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
"""An administrator who frees commits that wait for their standby: the server then says that they are done."""

NUMBERS: Final = {
    "promotions": Number(24, 2, "times that the standby takes over"),
    "zombie_every": Number(6, 2, "of so many promotions one while the old primary is frozen, and goes on later"),
    "rate": Number(150, 150, "jobs a second"),
}


async def run(lab: Lab) -> Finding:
    if lab.place.cluster is None:
        raise ConfigError("failover: it needs two servers of its own to kill; use --store postgres")
    times, zombie_every, rate = int(lab.number("promotions")), int(lab.number("zombie_every")), lab.number("rate")
    kinds = ["zombie" if number % zombie_every == 0 else "killed" for number in range(1, times + 1)]
    kept = await _played(lab, kinds, rate, synchronous=True)
    lab.show("without a synchronous standby", 0, 2)
    bare = await _played(lab, ["killed", "zombie"], rate, synchronous=False)
    broken = [*told(kept.verdict), *kept.amiss()]
    if not bare.verdict.counts["lost"] > bare.zombie_acks > 0:
        broken.append("without a synchronous standby nothing was lost: this experiment could not have shown a failure")
    counts = kept.verdict.counts
    return Finding(
        broken=broken,
        figures={
            "promotions": times,
            "of_them_with_a_zombie": kinds.count("zombie"),
            "back_s_median": round(percentile(kept.back, 0.5), 2),
            "back_s_max": round(max(kept.back), 2),
            "back_s": [round(seconds, 2) for seconds in kept.back],
            "zombie_writes_tried": kept.zombie_tries,
            "zombie_waits_cancelled": kept.waits_cancelled,
            "zombie_acks": kept.zombie_acks,
            "drained_in_s": kept.drained_in,
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
            "lease": LEASE,
            "timeout": TIMEOUT,
            "connect_timeout": CONNECT_TIMEOUT,
            "ships": 2,
            "fsync": "off" if lab.quick else "on",
            "processes_per_ship": PROCESSES,
            "replication_ends_before_primary_s": PARTED,
            "between_promotion_and_new_standby": "the primary answers alone",
        },
        text=(
            f"{times} times the standby that every commit waits for was promoted under {rate:g} mixed jobs/s:"
            f" {kinds.count('killed')} times after all processes of the primary were killed with -9, {PARTED:g} s after it had"
            f" lost its standby; {kinds.count('zombie')} times while it was frozen and later went on. {counts['accepted']:,} jobs"
            f" were accepted, {counts['lost']} of them are lost, {counts['settled_twice']} settled twice. All worker processes"
            f" were back after {percentile(kept.back, 0.5):.1f} s, {max(kept.back):.1f} s at most. {kept.zombie_tries} writes"
            f" were tried on zombies, whose waiting for a standby was cancelled {kept.waits_cancelled} times as an administrator"
            f" may do; {kept.zombie_acks} were taken for accepted."
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
    drained_in: float | None

    def amiss(self) -> list[str]:
        """What did not hold besides the verdict of the checker."""
        found = []
        if late := [seconds for seconds in self.back if seconds > BACK_WITHIN]:
            found.append(f"after {len(late)} promotions workers took longer than {BACK_WITHIN:g} s, up to {max(late):.1f} s")
        if self.zombie_acks:
            found.append(f"{self.zombie_acks} writes were accepted by a primary that had been replaced")
        if not self.zombie_tries:
            found.append("no write was tried on a zombie, so nothing is proven about them; ask with --set zombie_every=1")
        return found


async def _played(lab: Lab, kinds: Sequence[str], rate: float, *, synchronous: bool) -> Played:
    # Processes die here, not machines: what they wrote is with the kernel, so a quick run need not wait for the disk.
    fsync, durability = ("off", "relaxed") if lab.quick else ("on", "durable")
    pair = Pair(settings={"fsync": fsync}, synchronous=synchronous)
    await beside(pair.__enter__)
    try:
        place = Place("postgres", pair.url)
        async with place.fresh(timeout=TIMEOUT, connect_timeout=CONNECT_TIMEOUT, durability=durability) as (url, store):
            async with trial(lab, url, store, processes=PROCESSES, lease=LEASE) as found:
                promotions = Promotions(found, pair)
                async with under_load(found, rate=rate, mix=MIXED):
                    await promotions.everyone_at_work(time.monotonic_ns())
                    for number, kind in enumerate(kinds):
                        lab.show("promotions", number, len(kinds))
                        await promotions.one(kind)
            verdict = await found.verdict()
            records = read(found.folder / "journal")
        return Played(
            verdict=verdict,
            records=records,
            back=promotions.back,
            zombie_tries=promotions.zombie_tries,
            zombie_acks=promotions.zombie_acks,
            waits_cancelled=promotions.waits_cancelled,
            drained_in=found.drained_in,
        )
    finally:
        await beside(pair.remove)


class Promotions:
    """Makes them, one after the other, and sees when the workers are back."""

    def __init__(self, found: Trial, pair: Pair) -> None:
        self._found = found
        self._pair = pair
        self._tail = Tail(found.folder / "journal")
        self._load = Load(found.lab.seed + 1, {"fast": 1})
        self.back: list[float] = []
        self.zombie_tries = 0
        self.zombie_acks = 0
        self.waits_cancelled = 0

    async def one(self, kind: str) -> None:
        """One promotion; when this returns there is a new standby, and a moment of quiet has passed."""
        self._found.fault(kind)
        if kind == "zombie":
            await self._with_a_zombie()
        else:
            await beside(self._pair.part)
            await asyncio.sleep(PARTED)
            await beside(self._pair.primary.crash)
            await beside(self._pair.promote)
            await self._await_back()
        await beside(self._pair.rebuild)
        await asyncio.sleep(CALM)

    async def _with_a_zombie(self) -> None:
        async with self._writers(self._pair.primary) as writers:
            await beside(self._pair.primary.freeze)
            old = await beside(self._pair.promote)
            await self._await_back()
            await beside(old.thaw)
            end = time.monotonic() + UNDEAD
            await asyncio.gather(self._cancel_waits(old, end), *(self._write(writer, end) for writer in writers))
            await beside(old.crash)

    @asynccontextmanager
    async def _writers(self, primary: Cluster) -> AsyncIterator[list[Store]]:
        """Some that know of this server only, and had reached it while it was in order."""
        url = f"{primary.tcp_url}?schema={address(self._found.url).schema}&timeout=1&durability=relaxed"
        async with AsyncExitStack() as stack:
            writers = []
            for _ in range(4):
                writers.append(make_store(url))
                stack.push_async_callback(writers[-1].close)
                await writers[-1].open()
            yield writers

    async def _write(self, writer: Store, end: float) -> None:
        while time.monotonic() < end:
            jobs = self._load.take(1)
            runs = [Run(job.id) for job in jobs]
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

    async def _cancel_waits(self, zombie: Cluster, end: float) -> None:
        while time.monotonic() < end:
            await asyncio.sleep(0.2)
            self.waits_cancelled += (await beside(lambda: zombie.ask(CANCEL))).count("t")

    async def _await_back(self) -> None:
        promoted = time.monotonic_ns()
        self.back.append((await self.everyone_at_work(promoted) - promoted) / 1e9)

    async def everyone_at_work(self, since: int) -> int:
        """Wait until every worker process has claimed or settled; when the last of them did, on the journal's clock."""
        first: dict[str, int] = {}
        end = time.monotonic() + GIVEN_UP
        while len(first) < PROCESSES * len(self._found.ships):
            if time.monotonic() > end:
                return time.monotonic_ns()
            await asyncio.sleep(0.05)
            for record in await beside(self._tail.read):
                if record.at > since and record.what in (What.CLAIMED, What.SETTLED):
                    first.setdefault(record.by, record.at)
        return max(first.values())
