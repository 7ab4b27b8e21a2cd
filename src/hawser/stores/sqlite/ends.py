"""Reads for those who wait: how jobs ended, and what a held job waits for."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from hawser.batch import BatchState
from hawser.clock import at
from hawser.job import State
from hawser.store import DUE_COUNTED, GONE, WAITS_TOLD, Event, JobEnd, Upstream, Waits
from hawser.stores.record import end_of

_json = msgspec.json.Encoder().encode


def ended(con: sqlite3.Connection, sql: Mapping[str, str], ids: Sequence[str]) -> list[JobEnd | None]:
    rows = con.execute(sql["endings"], {"ids": _json(ids)})
    known = {id: end_of(*rest) for id, *rest in rows}
    return [known.get(id, GONE) for id in ids]


def waits(con: sqlite3.Connection, sql: Mapping[str, str], id: str) -> Waits | None:
    found = con.execute(sql["waits"], (id,)).fetchone()
    if found is None:
        return None
    total, left = found
    told = con.execute(sql["waits_told"], (id, WAITS_TOLD))
    return Waits(total, left, tuple(_upstream(*row) for row in told))


def _upstream(id: str, state: str, batch_state: str | None, name: str | None) -> Upstream:
    return Upstream(id, State(state)) if batch_state is None else Upstream(id, BatchState(batch_state).job_state, name)


def awaiting(con: sqlite3.Connection, sql: Mapping[str, str]) -> int:
    return int(con.execute(sql["awaiting"], {"most": DUE_COUNTED}).fetchone()[0])


def event(con: sqlite3.Connection, sql: Mapping[str, str], name: str) -> Event | None:
    found = con.execute(sql["event"], {"name": name}).fetchone()
    return None if found is None else Event(name=name, body=bytes(found[1]), at=at(found[2]), until=at(found[3]))


def waits_over(con: sqlite3.Connection, sql: Mapping[str, str], now: int) -> tuple[bool, bool]:
    """Whether there are waits with an end, and whether some are to be woken now."""
    first, stirred = con.execute(sql["first_end"]).fetchone()
    return first is not None or bool(stirred), bool(stirred) or (first is not None and first <= now)
