"""Breakers: each change is one piece of work inside a write transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hawser.breaker import Breaker
from hawser.clock import to_us
from hawser.job import Claimed
from hawser.store import Actor
from hawser.store.breakers import AttemptCount, BreakerStatus, BreakerVerdict
from hawser.stores.breakers import NO_BREAKER, KeptBreaker, decoded, encoded
from hawser.stores.sqlite.operations import note
from hawser.stores.sqlite.tx import Tx

OPEN_BREAKER = 2
"""What `controls` says of an open breaker, in place of whether something is paused."""


def probes_of(rows: Iterable[tuple[Any, ...]]) -> dict[str, int]:
    """The open breakers among what `controls` says, and when the next probe of each may start; 0 is never."""
    return {name: probe_at or 0 for _, name, what, probe_at, *_ in rows if what == OPEN_BREAKER}


def probe(tx: Tx, probes: Mapping[str, int], claimed: Sequence[Claimed]) -> None:
    """A claim has taken these jobs."""
    for job in claimed:
        if job.task in probes:
            tx.con.execute(tx.sql["note_probe"], {"task": job.task, "now": tx.now, "id": job.id, "lease": job.lease})
            tx.controls_changed()


def declare(tx: Tx, breakers: Mapping[str, Breaker | None]) -> None:
    for task, rule in breakers.items():
        kept = _kept(tx, task)
        if kept.rule != rule:
            _put(tx, task, kept.declared(rule, tx.now))


def judge(tx: Tx, verdicts: Sequence[BreakerVerdict]) -> list[bool]:
    answers = []
    for verdict in verdicts:
        kept = _kept(tx, verdict.task).judged(verdict, tx.now)
        if kept is not None:
            _put(tx, verdict.task, kept)
        answers.append(kept is not None)
    return answers


def open_by_hand(tx: Tx, task: str, actor: Actor) -> bool:
    kept = _kept(tx, task)
    if kept.open and kept.by_hand:
        return False
    _put(tx, task, kept.opened(tx.now, actor.by, by_hand=True))
    note(tx, "open_breaker", f"task:{task}", 0, actor)
    return True


def close_by_hand(tx: Tx, task: str, actor: Actor, counted: AttemptCount) -> bool:
    kept = _kept(tx, task)
    if not kept.open:
        return False
    _put(tx, task, kept.closed(tx.now, actor.by, counted))
    note(tx, "close_breaker", f"task:{task}", 0, actor)
    return True


def statuses(con: sqlite3.Connection, sql: Mapping[str, str]) -> list[BreakerStatus]:
    return [_read(*row).status(task) for task, *row in con.execute(sql["breakers"])]


def _kept(tx: Tx, task: str) -> KeptBreaker:
    row = tx.con.execute(tx.sql["breaker"], {"task": task}).fetchone()
    return NO_BREAKER if row is None else _read(*row)


def _read(about: str, probe_at: int | None, probe_id: str | None, probe_lease: int | None) -> KeptBreaker:
    return replace(decoded(about), probe_at=probe_at or 0, probe_id=probe_id or "", probe_lease=probe_lease or 0)


def _put(tx: Tx, task: str, kept: KeptBreaker) -> None:
    if kept.is_needed:
        every = None if kept.rule is None else to_us(kept.rule.probe_every)
        row = {"about": encoded(kept).decode(), "open": kept.open, "probe_at": kept.probe_at or None, "probe_every": every}
        probe = {"probe_id": kept.probe_id or None, "probe_lease": kept.probe_lease or None}
        tx.con.execute(tx.sql["put_breaker"], {"task": task, **row, **probe})
    else:
        tx.con.execute(tx.sql["drop_breaker"], {"task": task})
    tx.controls_changed()
