"""Jobs that workers declined, in the SQLite store."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.store import Declined, Unaccepted
from hawser.stores.declined import kept_of, merged
from hawser.stores.sqlite.tx import Tx


def decline(tx: Tx, notes: Sequence[Declined]) -> list[Unaccepted | None]:
    return [_note(tx, note) for note in notes]


def _note(tx: Tx, note: Declined) -> Unaccepted | None:
    row = tx.con.execute(tx.sql["declined"], {"id": note.id}).fetchone()
    if row is None:
        return None
    before = None if row[0] is None else kept_of(*row)
    kept = merged(before, note, tx.now)
    if kept != before:
        tx.con.execute(tx.sql["keep_declined"], {"id": note.id, "lease": kept.lease, "since": kept.since, "marks": kept.text()})
    return kept.answer(tx.now)


def forget(tx: Tx) -> None:
    tx.con.execute(tx.sql["forget_declined"])
