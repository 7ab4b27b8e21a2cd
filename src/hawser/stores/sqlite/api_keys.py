"""The API keys of the SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from hawser.clock import to_us
from hawser.store import Actor
from hawser.store.api_key import ApiKey, KeyRecord
from hawser.stores.record import key_of
from hawser.stores.sqlite.operations import note
from hawser.stores.sqlite.tx import Tx


def put(tx: Tx, key: ApiKey, lasts: float | None, actor: Actor) -> None:
    expires_at = None if lasts is None else tx.now + to_us(lasts)
    row = {"id": key.id, "about": msgspec.json.encode(key), "now": tx.now, "expires_at": expires_at}
    if tx.con.execute(tx.sql["put_api_key"], row).rowcount:
        note(tx, "create_key", f"key:{key.id}", 0, actor)


def revoke(tx: Tx, id: str, actor: Actor) -> bool:
    revoked = bool(tx.con.execute(tx.sql["revoke_api_key"], {"id": id, "now": tx.now}).rowcount)
    if revoked:
        note(tx, "revoke_key", f"key:{id}", 0, actor)
    return revoked


def use(tx: Tx, ids: Sequence[str]) -> None:
    tx.con.executemany(tx.sql["use_api_key"], [(tx.now, id) for id in ids])


def records(con: sqlite3.Connection, sql: Mapping[str, str], now: int) -> list[KeyRecord]:
    return [key_of(now, *row) for row in con.execute(sql["api_keys"])]
