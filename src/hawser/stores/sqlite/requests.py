"""The requests that callers may repeat. Each function is a piece of work inside a write transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hawser.clock import to_us
from hawser.errors import RequestConflict
from hawser.store import REQUEST_KEPT, Enqueued, RequestKey
from hawser.stores.sqlite.tx import Tx

REQUEST_LOOK_EVERY_US: Final = to_us(3_600)
"""Between two looks at a request whose jobs outlive it."""


def knows(con: sqlite3.Connection, sql: Mapping[str, str], now: int, request: RequestKey) -> bool:
    """Whether its caller gave this key to a request before."""
    asked = {"caller": request.caller, "key": request.key, "now": now}
    found = con.execute(sql["recall_request"], asked).fetchone()
    return found is not None and not found[2]


def recall(tx: Tx, request: RequestKey) -> list[Enqueued] | None:
    """What was answered the first time; None when this is the first time."""
    asked = {"caller": request.caller, "key": request.key, "now": tx.now}
    found = tx.con.execute(tx.sql["recall_request"], asked).fetchone()
    if found is None or found[2]:
        return None
    if found[0] != request.digest:
        raise RequestConflict(request.key)
    return [Enqueued(id, created=False) for id in msgspec.json.decode(found[1], type=list[str])]


def remember(tx: Tx, request: RequestKey, answers: Sequence[Enqueued]) -> None:
    jobs = msgspec.json.encode([answer.id for answer in answers]).decode()
    row = {"caller": request.caller, "key": request.key, "digest": request.digest, "jobs": jobs}
    tx.con.execute(tx.sql["remember_request"], {**row, "until": tx.now + to_us(REQUEST_KEPT)})


def forget(tx: Tx, limit: int) -> None:
    """Let go of some that are over."""
    for caller, key, kept in tx.con.execute(tx.sql["requests_over"], {"now": tx.now, "limit": limit}).fetchall():
        if kept:
            tx.con.execute(tx.sql["look_at_request_later"], (tx.now + REQUEST_LOOK_EVERY_US, caller, key))
        else:
            tx.con.execute(tx.sql["forget_request"], (caller, key))
