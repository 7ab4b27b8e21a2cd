"""Claim: the due jobs of some queues, each started under a lease."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hawser.clock import to_us
from hawser.job import Claimed, State
from hawser.store import SETTLE_GRACE, Leave, Share, Target
from hawser.stores.breakers import with_breakers
from hawser.stores.columns import read_tags
from hawser.stores.limits import bounded
from hawser.stores.order import choose
from hawser.stores.sqlite import breakers, limits
from hawser.stores.sqlite.expiry import EXPIRED_PER_CLAIM, expire
from hawser.stores.sqlite.group_rules import GroupRules, group_bounds_of
from hawser.stores.sqlite.limits import KeptBound
from hawser.stores.sqlite.turns import ClaimLevels
from hawser.stores.sqlite.tx import Tx

_GRACE: Final = to_us(SETTLE_GRACE)
_json = msgspec.json.Encoder().encode


def claim(
    tx: Tx, queues: Sequence[Share], limit: int, worker: str, lease_for: float, turn: int, room: Mapping[str, int], leave: Leave
) -> list[Claimed]:
    expire(tx, EXPIRED_PER_CLAIM)
    tx.flush()
    bounds = limits.bounds_of(tx.controls(), tx.now)
    probes = breakers.probes_of(tx.controls())
    rooms = with_breakers(limits.rooms(tx.con, tx.sql, bounds), probes, tx.now)
    shares, left = bounded(queues, room, rooms)

    per_group = group_bounds_of(tx.controls())
    rules = GroupRules(tx, per_group) if per_group else None
    levels = ClaimLevels(tx, limit, leave, rooms, rules)
    lease_us = to_us(lease_for)
    claimed: list[Claimed] = []
    starts: defaultdict[int, list[int]] = defaultdict(list)
    counts: Counter[tuple[str, str, int, int]] = Counter()
    for entry in choose(shares, limit, turn, tx.now, levels.of, left, tx.ageing):
        run_at, seq, id, task, queue, priority, attempt, max_attempts, lease, enqueued_at, crashes, lane, *given = entry
        body, timeout, key, parent_id, schedule, batch, tags, tick, group = given
        starts[min(lease_us, to_us(timeout) + _GRACE)].append(seq)
        counts[queue, task, priority, lane] += 1
        claimed.append(
            Claimed(
                id,
                task,
                queue,
                body,
                priority,
                attempt + 1,
                max_attempts,
                timeout,
                lease + 1,
                run_at,
                enqueued_at,
                key=key,
                tags=read_tags(tags) if tags else (),
                parent_id=parent_id,
                schedule=schedule,
                tick_us=tick,
                group=group,
                batch=batch,
                crashes=crashes,
                hint=(seq, queue, task, priority, attempt + 1, max_attempts, group, batch if key is None else key),
            )
        )
    for leased_for, jobs in starts.items():
        tx.con.execute(tx.sql["start"], {"now": tx.now, "leased_for": leased_for, "worker": worker, "jobs": _json(jobs)})
    if rules is not None:
        rules.start(claimed)
    levels.close()
    _note_starts(tx, bounds, probes, claimed)
    for (queue, task, priority, lane), n in counts.items():
        tx.wait(queue, task, priority, lane, -n)
        tx.move(queue, task, priority, State.RUNNING, +n)
        tx.tally(queue, task, "claimed", n)
    return claimed


def _note_starts(tx: Tx, bounds: Mapping[Target, KeptBound], probes: Mapping[str, int], claimed: Sequence[Claimed]) -> None:
    """Jobs start: rates count them, and breakers know their probes by them."""
    if probes:
        breakers.probe(tx, probes, claimed)
    if bounds:
        limits.start(tx, bounds, Counter((job.queue, job.task) for job in claimed))
