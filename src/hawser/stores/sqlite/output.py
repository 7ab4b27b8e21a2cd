"""The output of jobs, in the SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from hawser.store import Chunk, LeaseRef, NewOutput, OutputKept
from hawser.stores.output import LastChunk, appended, chunk_of, kept_of
from hawser.stores.sqlite.running import RunningRow, held
from hawser.stores.sqlite.tx import Tx


def write(tx: Tx, outputs: Sequence[NewOutput]) -> list[OutputKept | None]:
    runs = held(tx, [LeaseRef(output.id, output.lease) for output in outputs])
    return [_write(tx, output, runs.get((output.id, output.lease))) for output in outputs]


def _write(tx: Tx, output: NewOutput, run: RunningRow | None) -> OutputKept | None:
    if run is None:
        return None
    found = tx.con.execute(tx.sql["last_chunk"], (run.seq,)).fetchone()
    last = LastChunk() if found is None else LastChunk(*found)
    if kept := list(appended(last, output)):
        tx.con.executemany(tx.sql["add_chunk"], [(run.seq, *each.last, output.attempt, tx.now, each.body) for each in kept])
        last = kept[-1].last
    return kept_of(last, output.lease)


def read(con: sqlite3.Connection, sql: Mapping[str, str], id: str, after: int, limit: int) -> list[Chunk]:
    return [chunk_of(*row) for row in con.execute(sql["output"], {"id": id, "after": after, "limit": limit})]
