"""Debounced jobs: the payload of a call takes the place of an earlier one's, in one transaction, ours or the caller's."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import asyncpg
from msgspec.structs import replace

from hawser.clock import to_us
from hawser.job import KeyScope, NewJob
from hawser.store import Enqueued
from hawser.stores.columns import GIVEN, values_of
from hawser.stores.debounce import DebouncedHolder, Debouncing, Judged, Replacement, any_debounced
from hawser.stores.order import Lane, changed_place
from hawser.stores.postgres.enqueue_arguments import Arguments, Pieces, Rows, made_on
from hawser.stores.postgres.lane_catalog import Kind
from hawser.stores.postgres.server import Server

DEBOUNCE_TRIES: Final = 5
"""How often a call looks again because another has taken the key meanwhile."""

_GIVEN_NAMES: Final = [column.name for column in GIVEN]

Steps = Generator[tuple[str, Arguments], Rows, list[Enqueued]]
"""Statements with their arguments; each is answered by its rows. So the same order holds on every driver."""


class Terms(NamedTuple):
    """How the jobs are added."""

    late: bool
    wake: Sequence[str]
    patience: int | None


class StartedHolder(NamedTuple):
    """A debounced job that was given out, and still has its key."""

    scope: KeyScope
    id: str
    newest: str
    lane: int
    waits: bool
    """Without an attempt: it was handed back, or is held. Then it has to let go of the key."""


def steps_of(server: Server, jobs: Sequence[NewJob], lanes: Sequence[int], terms: Terms) -> Steps:
    """The statements that add jobs in a transaction that is open."""
    if any_debounced(jobs):
        return _debouncing(server, jobs, lanes, terms)
    return _adding(server, Pieces(jobs, lanes), terms)


async def fetched(con: asyncpg.Connection, steps: Steps) -> list[Enqueued]:
    """Run the statements on a connection of ours."""
    rows: Any = None
    try:
        while True:
            statement, asked = steps.send(rows)
            rows = await con.fetch(statement, *asked)
    except StopIteration as end:
        answers: list[Enqueued] = end.value
        return answers


def _adding(server: Server, pieces: Pieces, terms: Terms) -> Steps:
    rows: list[Rows] = []
    for call in pieces.calls:
        asked = call.arguments(server.given, late=terms.late, wake=terms.wake, patience=terms.patience)
        rows += [(yield server.sql["enqueue"], asked)]
    return pieces.answers(rows)


def _debouncing(server: Server, jobs: Sequence[NewJob], lanes: Sequence[int], terms: Terms) -> Steps:
    """Of these jobs some are debounced."""
    lane_of = {job.id: lane for job, lane in zip(jobs, lanes, strict=True)}
    call = Debouncing(jobs, lambda _: None, 0)
    said: dict[str, Enqueued] = {}
    if terms.patience is not None:
        yield server.sql["patience"], (str(terms.patience),)
    pending = yield from _as_written(server, call.jobs)
    for _ in range(DEBOUNCE_TRIES):
        now, waiting, started = yield from _look(
            server, [job for job, known in pending if job.debounce is not None and not known]
        )
        holders = {**{scope: holder for scope, (holder, _) in started.items()}, **waiting}
        judging = Debouncing([job for job, _ in pending], holders.get, now)
        to_add: list[tuple[NewJob, bool]] = []
        for job, known in pending:
            judged = judging.judge(job) if job.debounce is not None and not known else Judged()
            if judged.answer is not None:
                said[job.id] = judged.answer
                continue
            to_add.append((job, known))
            if judged.free and started[job.key_scope][1].waits:
                yield from _let_go(server, started[job.key_scope][1])
        for each in judging.replacements:
            yield server.sql["replace_payload"], _replacing(each, now)
        answers = yield from _add(server, [job for job, _ in to_add], lane_of, terms)
        said.update({job.id: answer for (job, _), answer in zip(to_add, answers, strict=True)})
        pending = [(job, known) for job, known in to_add if job.debounce is not None and said[job.id].id != job.id]
        if not pending:
            break
    return call.answers([said[job.id] for job in call.jobs])


def _as_written(server: Server, jobs: Sequence[NewJob]) -> Generator[tuple[str, Arguments], Rows, list[tuple[NewJob, bool]]]:
    """The jobs, and whether the store has them. A debounced one whose id it has is the same, also with another payload."""
    ids = [job.id for job in jobs if job.debounce is not None]
    rows = yield server.sql["known_jobs"], (server.given, ids, made_on(ids))
    there = {str(id): bytes(body) for id, _, _, body in rows}
    return [(replace(job, body=there[job.id]), True) if job.id in there else (job, False) for job in jobs]


def _look(
    server: Server, jobs: Sequence[NewJob]
) -> Generator[
    tuple[str, Arguments],
    Rows,
    tuple[int, dict[KeyScope, DebouncedHolder], dict[KeyScope, tuple[DebouncedHolder, StartedHolder]]],
]:
    """The time, and the debounced jobs that have these keys: those that wait, locked, and those that were given out."""
    scopes = sorted({job.key_scope for job in jobs})
    asked: Arguments = tuple([scope[n] for scope in scopes] for n in range(3))
    rows = (yield server.sql["debounced_waiting"], asked) if scopes else []
    waiting = {
        KeyScope(queue, task, key): DebouncedHolder(str(id), str(newest), until, started=False)
        for queue, task, key, id, newest, until in rows
    }
    # A statement of its own: it sees what was committed while the first one waited for a lock.
    rows = (yield server.sql["debounced_started"], asked) if len(waiting) < len(scopes) else []
    found = [
        StartedHolder(KeyScope(queue, task, key), str(id), str(newest), lane, waits)
        for queue, task, key, id, newest, lane, waits in rows
    ]
    started = {each.scope: (DebouncedHolder(each.id, each.newest, None, started=True), each) for each in found}
    [(now,)] = yield server.sql["store_time"], (server.given,)
    return now, waiting, started


def _let_go(server: Server, holder: StartedHolder) -> Generator[tuple[str, Arguments], Rows, None]:
    yield server.sql["let_go"], (*holder.scope, holder.id)
    yield server.sql["count"], (server.given, [holder.lane], ["@keys"], [-1])


def _add(
    server: Server, jobs: Sequence[NewJob], lane_of: Mapping[str, int], terms: Terms
) -> Generator[tuple[str, Arguments], Rows, list[Enqueued]]:
    answers = yield from _adding(server, Pieces(jobs, [lane_of[job.id] for job in jobs]), terms)
    new = [job for job, answer in zip(jobs, answers, strict=True) if answer.created and job.debounce is not None]
    if new:
        until = [None if job.at_most is None else to_us(job.at_most) for job in new]
        yield server.sql["note_debounced"], (server.given, [job.id for job in new], until)
    return answers


def _replacing(replacement: Replacement, now: int) -> tuple[Any, ...]:
    """Dated back, a job goes to the kind that has no frontier."""
    given = dict(zip(_GIVEN_NAMES, values_of(replacement.job, now), strict=True))
    run_at, place = changed_place(0, replacement.run_at, now)
    kind = Kind.LATE if place is Lane.FRESH else Kind.TIMED
    job = replacement.job
    return replacement.holder, given["body"], given["indexed"], given["expires_at"], run_at, kind, job.id
