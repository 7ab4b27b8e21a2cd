"""Reads for those who wait: how jobs ended, and what a held job waits for."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from hawser.job import State
from hawser.store import GONE, WAITS_TOLD, JobEnd, Upstream, Waits
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
    return Waits(total, left, tuple(Upstream(job, State(state)) for job, state in told))
