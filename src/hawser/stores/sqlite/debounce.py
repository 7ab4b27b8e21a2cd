"""Debounced jobs: the payload of a call takes the place of an earlier one's, in the writer's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.job import KeyScope, NewJob
from hawser.stores.columns import GIVEN, values_of
from hawser.stores.debounce import DebouncedHolder, Debouncing, Replacement, due_until
from hawser.stores.order import changed_place, lane_number
from hawser.stores.sqlite.ending import FoundJob
from hawser.stores.sqlite.tx import Tx


def debouncing(tx: Tx, jobs: Sequence[NewJob]) -> Debouncing:
    """The debounced jobs of one call, and how they are judged here."""

    def look(scope: KeyScope) -> DebouncedHolder | None:
        found = tx.con.execute(tx.sql["debounced"], scope._asdict()).fetchone()
        return None if found is None else DebouncedHolder(found[0], found[1], found[2], started=bool(found[3]))

    return Debouncing(jobs, look, tx.now)


def note(tx: Tx, added: Sequence[NewJob]) -> None:
    """Remember of new jobs that are debounced until when they may be put off."""
    for job in added:
        if job.debounce is not None:
            record = {**job.key_scope._asdict(), "newest": job.id, "until": due_until(job, tx.now)}
            tx.con.execute(tx.sql["note_debounced"], record)


def replace_payload(tx: Tx, replacement: Replacement) -> None:
    """A job that waits gets the payload of another call, and is put off."""
    job = FoundJob(*tx.con.execute(tx.sql["target"], {"id": replacement.holder}).fetchone())
    run_at, kind = changed_place(job.attempt, replacement.run_at, tx.now)
    lane = lane_number(kind, job.group)
    given = dict(zip((column.name for column in GIVEN), values_of(replacement.job, tx.now), strict=True))
    new = {"seq": job.seq, "run_at": run_at, "lane": lane, **{name: given[name] for name in ("body", "indexed", "expires_at")}}
    tx.con.execute(tx.sql["replace_payload"], new)
    tx.wait(job.queue, job.task, job.priority, job.lane, -1)
    tx.wait(job.queue, job.task, job.priority, lane, +1)
    tx.open_group(job.queue, job.task, job.priority, job.group, run_at)
    tx.reopen_group(job.task, job.group)
    tx.con.execute(tx.sql["replaced_by"], {**replacement.job.key_scope._asdict(), "newest": replacement.job.id})
