"""Known bugs, planted on purpose: a test layer that does not notice them proves nothing.

`planted(name)` breaks the stores, or the door of the HTTP API, for as long as it lasts. The bugs of the SQL stores are changes to
their statements; each says what it replaces, so that a statement which has changed since is an error and not a mutant that lives
unseen.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from msgspec import structs

from hawser.api import identity, keyless, pull
from hawser.api.rate import Bucket
from hawser.stores import dedup
from hawser.stores.memory import MemoryStore, api_keys, keys, leases
from hawser.stores.memory import bulk as memory_bulk
from hawser.stores.memory import groups as memory_groups
from hawser.stores.memory import jobs as memory_jobs
from hawser.stores.memory import limits as memory_limits
from hawser.stores.memory import requests as memory_requests
from hawser.stores.memory import store as memory_store
from hawser.stores.memory import turns as memory_turns
from hawser.stores.postgres import PostgresStore, charts
from hawser.stores.postgres import declined as postgres_declined
from hawser.stores.postgres import edits as postgres_edits
from hawser.stores.postgres import enqueue as postgres_enqueue
from hawser.stores.postgres.server import SQL as POSTGRES_SQL
from hawser.stores.sqlite import declined as sqlite_declined
from hawser.stores.sqlite import edits as sqlite_edits
from hawser.stores.sqlite import enqueue as sqlite_enqueue
from hawser.stores.sqlite import operations, schedules
from hawser.stores.sqlite import settle as sqlite_settle
from hawser.stores.sqlite import steps as sqlite_steps
from hawser.stores.sqlite import store as sqlite_store
from hawser.stores.sqlite import turns as sqlite_turns
from hawser.stores.sqlite.store import SqliteStore
from hawser.stores.sqlite.tx import SQL, Tx

VARIABLE = "HAWSER_MUTANT"

Patch = Any
"""A context manager that breaks something."""


def in_memory(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], owner: Any = MemoryStore) -> Patch:
    """Replace a function of the memory store by one that knows the right one."""
    return mock.patch.object(owner, name, make(getattr(owner, name)))


def in_sql(*changes: tuple[str, str, str], only: tuple[Any, str] | None = None) -> Patch:
    """Replace texts in statements, everywhere or in one function of a module."""
    broken = dict(SQL)
    for statement, right, wrong in changes:
        assert right in broken[statement], f"the statement {statement} has changed: adapt its mutant"
        broken[statement] = broken[statement].replace(right, wrong)
    if only is None:
        return mock.patch.dict(SqliteStore.__init__.__kwdefaults__, sql=broken)
    return mock.patch.object(*only, _with_sql(getattr(*only), broken))


def _with_sql(work: Callable[..., Any], broken: Mapping[str, str]) -> Callable[..., Any]:
    def mutant(tx: Any, *arguments: Any, **options: Any) -> Any:
        right, tx.sql = tx.sql, broken
        try:
            return work(tx, *arguments, **options)
        finally:
            tx.sql = right

    return mutant


def in_postgres(*changes: tuple[str, str, str]) -> Patch:
    """Replace texts in statements of the PostgreSQL store."""
    broken = dict(POSTGRES_SQL)
    for statement, right, wrong in changes:
        assert right in broken[statement], f"the statement {statement} has changed: adapt its mutant"
        broken[statement] = broken[statement].replace(right, wrong)
    return mock.patch.dict(PostgresStore.__init__.__kwdefaults__, sql=broken)


_ANY_LEASE = (
    ("held", "select j.seq, j.id, j.lease,", "select j.seq, j.id, want.value ->> 1,"),
    ("held", "j.lease = want.value ->> 1 and ", ""),
)
_NOTHING_NOTED = "select :at, :by, :action, :target, :count, :reason, :about where false"
_ENDED_OR_NOT = "coalesce(j.lease_until, j.started_at + j.leased_for)"
_CURRENT_REVISIONS = """coalesce((select array_agg(s.revision order by w.n) from unnest($2::text[]) with ordinality as w(name, n)
    left join hawser.schedule as s on s.name = w.name), $3::text[]),"""


def _judged_by(holds: Callable[..., bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function of the memory store work with another fence."""

    def make(work: Callable[..., Any]) -> Callable[..., Any]:
        def mutant(*arguments: Any) -> Any:
            with mock.patch.object(MemoryStore, "_holds", holds):
                return work(*arguments)

        return mutant

    return make


def _any_lease(store: Any, row: Any, lease: int) -> bool:
    return bool(row.state == "running")


def _while_it_lasts(store: Any, row: Any, lease: int) -> bool:
    return bool(row.state == "running" and row.lease == lease and row.lease_until > store._clock.now())


def _only_while_they_last(held: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tx, refs: {key: run for key, run in held(tx, refs).items() if run.lease_until > tx.now}


def _start_without_attempt(start: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(store: Any, row: Any, *rest: Any) -> Any:
        claimed = start(store, row, *rest)
        row.attempt -= 1
        return claimed

    return mutant


def _settle_with_attempt(settle: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(store: Any, settlement: Any, now: int) -> Any:
        row = store._rows.get(settlement.id)
        if row is not None and store._holds(row, settlement.lease):
            row.attempt += 1
        return settle(store, settlement, now)

    return mutant


def _reclaim_without_new_lease(reclaim: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(store: Any, row: Any, now: int) -> Any:
        answer = reclaim(store, row, now)
        row.lease -= 1
        return answer

    return mutant


def _requeue_from_lease_zero(requeue: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(store: Any, row: Any, *rest: Any) -> Any:
        answer = requeue(store, row, *rest)
        if answer == "done":
            row.lease = 0
        return answer

    return mutant


def _stands_in_any_state(stands: Callable[..., Any]) -> Callable[..., Any]:
    return lambda entry: entry[3].lease == entry[2]


def _attempts_of_the_job_alone(attempts_of: Callable[..., int]) -> Callable[..., int]:
    return lambda own, _: attempts_of(own, None)


def _any_revision(advance: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(store: Any, change: Any, now: int) -> Any:
        standing = store._schedules.get(change.schedule.name)
        return advance(store, structs.replace(change, expect=standing and standing.revision), now)

    return mutant


def _judged_on_any_revision(judged: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(change: Any, revisions: Mapping[str, str], live: set[str]) -> Any:
        return judged(structs.replace(change, expect=revisions.get(change.schedule.name)), revisions, live)

    return mutant


def _without_memory_of_ticks(ticks: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_: set()


def _forgetful(add: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(store: Any, *rest: Any) -> Any:
        answer = add(store, *rest)
        store._ticks.clear()
        return answer

    return mutant


def _as_if_none_ended(rooms: Callable[..., Any]) -> Callable[..., Any]:
    most: dict[Any, int] = {}

    def mutant(limits: Any, now: int, running: Callable[[Any], int]) -> Any:
        def counted(target: Any) -> int:
            most[target] = max(most.get(target, 0), running(target))
            return most[target]

        return rooms(limits, now, counted)

    return mutant


def _never(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_: None


def _without(time: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a key be shown as if it had no such time."""

    def make(record: Callable[..., Any]) -> Callable[..., Any]:
        def mutant(held: Any, now: int) -> Any:
            with mock.patch.object(held, time, None):
                return record(held, now)

        return mutant

    return make


def _put_over(put: Callable[..., bool]) -> Callable[..., bool]:
    def mutant(keys: Any, key: Any, *rest: Any) -> bool:
        keys._held.pop(key.id, None)
        return put(keys, key, *rest)

    return mutant


def _of_all_queues(rollups: Callable[..., Any]) -> Callable[..., Any]:
    return lambda store, minutes, queue=None, task=None: rollups(store, minutes, None, task)


def _in_the_next_bucket(event_of: Callable[..., str]) -> Callable[..., str]:
    return lambda measured: event_of(structs.replace(measured, bucket=(measured.bucket + 1) % 2))


def _admits_with_all_roles(admit: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(*arguments: Any) -> Any:
        right = await admit(*arguments)
        return identity.Identity(right.name, identity.ALL, right.tasks, right.queues)

    return mutant


def _of_any(field: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The fence of a bulk operation's steps, without one half of it."""

    def make(current: Callable[..., Any]) -> Callable[..., Any]:
        def mutant(bulks: Any, step: Any) -> Any:
            kept = bulks._kept.get(step.id)
            right = {"turn": "turn", "behind": "cursor"}[field]
            return current(bulks, step if kept is None else structs.replace(step, **{field: getattr(kept, right)}))

        return mutant

    return make


def _of_any_queue(of: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(groups: Any, queue: str | None, task: str | None) -> Any:
        sizes = {(group.task, group.fingerprint): group.size for group in of(groups, None, task)}
        return [group._replace(size=sizes[group.task, group.fingerprint]) for group in of(groups, queue, task)]

    return mutant


def _all_mine(mine: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(call: Any, leases: Any) -> list[bool]:
        return [True for _ in leases]

    return mutant


def _without_nothing(without: Callable[..., Any]) -> Callable[..., Any]:
    return lambda store, ids, now: without(store, (), now)


def _nothing_left(cursor: Callable[..., Any]) -> Callable[..., Any]:
    return lambda rows, task, left, **options: cursor(rows, task, frozenset(), **options)


def _from_the_last_note(merged: Callable[..., Any]) -> Callable[..., Any]:
    return lambda kept, note, now: merged(kept, note, now)._replace(since=now)


def _with_sql_of(changes: Sequence[tuple[str, str, str]], work: Callable[..., Any]) -> Callable[..., Any]:
    broken = dict(SQL)
    for statement, right, wrong in changes:
        assert right in broken[statement], f"the statement {statement} has changed: adapt its mutant"
        broken[statement] = broken[statement].replace(right, wrong)
    return _with_sql(work, broken)


def _forgetting_steps(record: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(store: Any, step: Any, now: int) -> Any:
        store._made_steps.get(step.id, {}).pop(step.name, None)
        return record(store, step, now)

    return mutant


def _keeping_attempts(record: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(store: Any, step: Any, now: int) -> Any:
        row = store._rows.get(step.id)
        attempt = row and row.attempt
        answer = record(store, step, now)
        if row is not None:
            row.attempt = attempt
        return answer

    return mutant


def _remembering_steps(remove: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(store: Any, row: Any, now: int) -> None:
        steps = store._made_steps.get(row.new.id)
        remove(store, row, now)
        if steps is not None:
            store._made_steps[row.new.id] = steps

    return mutant


def _without_opening(work: Callable[..., Any]) -> Callable[..., Any]:
    """The job comes back to its group, and the group does not hear of it."""

    def mutant(*arguments: Any, **options: Any) -> Any:
        nothing = mock.Mock()
        with mock.patch.object(Tx, "open_group", nothing), mock.patch.object(memory_turns.LaneGroups, "_reopen", nothing):
            return work(*arguments, **options)

    return mutant


def _with_weight_one(turn: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(level: Any, name: str, number: int) -> Any:
        group = turn(level, name, number)
        group.weight = 1
        return group

    return mutant


def _always(answer: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda _: lambda *arguments: answer


def _of_every_worker(end_leases: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(store: Any, worker: str, actor: Any) -> int:
        workers = {row.worker for row in store._leases.all()}
        return sum([await end_leases(store, each, actor) for each in workers])

    return mutant


def _left_behind(move_key: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(*_: Any) -> bool:
        return True

    return mutant


MUTANTS: dict[str, Callable[[], tuple[Patch, ...]]] = {
    # A run that ends leaves its place under a limit taken.
    "limit_frees_nothing": lambda: (
        in_memory("rooms", _as_if_none_ended, memory_limits.Limits),
        in_sql(
            *((name, "sum(running)", "sum(running + done + dead + retrying)") for name in ("running_in_queue", "running_of_task"))
        ),
        in_postgres(("rooms", "m.running - (", "m.running - 0 * (")),
    ),
    # The starts of a period are not counted.
    "rate_is_not_kept": lambda: (
        in_memory("start", _never, memory_limits.Limits),
        in_sql(("note_starts", "where kind = ?", "where false and kind = ?")),
        in_postgres(
            ("put_limit", "$7, $8, $9", "$7, nullif($8::integer, $8::integer), $9"),
            ("put_limit", "starts = excluded.starts", "starts = null"),
        ),
    ),
    # A settlement is let through whatever its lease number.
    "no_fence": lambda: (
        in_memory("_settle", _judged_by(_any_lease)),
        in_sql(*_ANY_LEASE, ("finish", "and lease = ?", "and ? is not null"), only=(sqlite_settle, "settle")),
        in_postgres(*((name, "j.lease = w.lease", "w.lease is not null") for name in ("finish", "leave", "held"))),
    ),
    # An extension is let through whatever its lease number.
    "extend_without_fence": lambda: (
        in_memory("_extend", _judged_by(_any_lease)),
        in_sql(*_ANY_LEASE, only=(sqlite_store, "extend")),
        in_postgres(("extend", "j.lease = w.lease", "true"), ("extend", "j.id::text, j.lease,", "j.id::text, w.lease,")),
    ),
    # A settlement is refused when its lease has run out, although nobody reclaimed the run.
    "late_settlement_is_refused": lambda: (
        in_memory("_settle", _judged_by(_while_it_lasts)),
        in_memory("_finish", _always(False), sqlite_settle),
        in_memory("held", _only_while_they_last, sqlite_settle),
        in_postgres(("finish", "j.lease = w.lease and j.running", "j.lease = w.lease and j.running and j.lease_until > c.now")),
    ),
    # The attempt is counted when it is settled, so one that crashed never counts.
    "attempt_at_settle": lambda: (
        in_memory("_start", _start_without_attempt),
        in_memory("_settle", _settle_with_attempt),
        in_sql(
            ("start", "attempt = attempt + 1, ", ""),
            ("held", "j.attempt,", "j.attempt + 1,"),
            ("finish", "set state = 'done',", "set state = 'done', attempt = attempt + 1,"),
        ),
        in_postgres(
            ("take", "attempt = j.attempt + 1, ", ""),
            ("finish", "g.lease, g.attempt,", "g.lease, g.attempt + 1,"),
            ("held", "j.attempt,", "j.attempt + 1,"),
        ),
    ),
    # A lease that ran out is taken back although its job has left running.
    "reclaim_without_state_guard": lambda: (
        in_memory("_stands", _stands_in_any_state, leases),
        in_sql(
            ("expired", "indexed by hawser_job_running", ""),
            ("expired", "state = 'running' and lease_until", "coalesce(lease_until, started_at + leased_for)"),
        ),
        in_postgres(
            (
                "expired",
                "j.running and j.granted = g.id and j.lease_until",
                _ENDED_OR_NOT,
            ),
            ("leave", "j.running and (not $2 or j.lease_until", f"(not $2 or {_ENDED_OR_NOT}"),
        ),
    ),
    # A step is recorded whatever the lease number of its run.
    "step_without_fence": lambda: (
        in_memory("_record_step", _judged_by(_any_lease)),
        mock.patch.object(sqlite_steps, "held", _with_sql_of(_ANY_LEASE, sqlite_settle.held)),
        in_postgres(
            ("record_steps", "where j.lease = w.lease and j.running", "where j.running"),
            (
                "record_steps",
                "join held as r on r.id = w.id and r.lease = w.lease order by",
                "join held as r on r.id = w.id order by",
            ),
            ("record_steps", "join held as r on r.id = w.id and r.lease = w.lease left", "join held as r on r.id = w.id left"),
        ),
    ),
    # A second record under a name replaces the first.
    "last_record_of_a_step_wins": lambda: (
        in_memory("_record_step", _forgetting_steps),
        in_sql(("record_step", "do nothing", "do update set value = excluded.value, at = excluded.at")),
        in_postgres(("record_steps", "do nothing", "do update set value = excluded.value, at = excluded.at")),
    ),
    # Attempts are not counted from the last step on.
    "attempts_before_a_step_count": lambda: (
        in_memory("_record_step", _keeping_attempts),
        in_sql(("count_from_step", "attempt > 1", "false")),
        in_postgres(("record_steps", "r.attempt > 1", "false")),
    ),
    # A reclaim leaves the lease number as it is.
    "reclaim_keeps_lease": lambda: (
        in_memory("_reclaim", _reclaim_without_new_lease),
        in_sql(("leave", "lease = ?,", "lease = min(lease, ?),"), only=(sqlite_store, "reclaim")),
        in_postgres(("leave", "lease = j.lease + $2::integer", "lease = j.lease"), ("leave", "g.lease + $2::integer", "g.lease")),
    ),
    # Lease numbers begin anew when a job is requeued.
    "requeue_resets_lease": lambda: (
        in_memory("_requeue", _requeue_from_lease_zero),
        in_sql(("requeue", "attempt = 0,", "attempt = 0, lease = 0,")),
        in_postgres(("requeue", "c.now, g.lease,", "c.now, 0,")),
    ),
    # What a queue says of its jobs' attempts is not asked for.
    "no_attempts_of_the_queue": lambda: (
        in_memory("attempts_of", _attempts_of_the_job_alone, memory_jobs),
        in_memory("attempts_of", _attempts_of_the_job_alone, sqlite_enqueue),
        in_postgres(("set_policy", "values ($1, $2, $3)", "values ($1, $2, nullif($3::integer, $3))")),
    ),
    # A schedule is put forward on whatever revision that was decided.
    "fire_on_any_revision": lambda: (
        in_memory("_advance", _any_revision),
        mock.patch.object(schedules, "_judged", _judged_on_any_revision(schedules._judged)),
        in_postgres(("fire", "$3::text[],", _CURRENT_REVISIONS)),
    ),
    # A tick that has its job makes another when its schedule begins anew.
    "tick_without_memory": lambda: (
        in_memory("_add", _forgetful),
        mock.patch.object(schedules, "_ticks", _without_memory_of_ticks(schedules._ticks)),
        in_postgres(("fire", "$27::bigint[]", "nullif($27::bigint[], $27)")),
    ),
    # A key stays held when its job has ended.
    "live_key_never_freed": lambda: (
        in_memory("end", _never, keys.Keys),
        in_sql(("free_key", "until is null", "until is null and false")),
        in_postgres(*((name, "k.until is null", "k.until is null and false") for name in ("finish", "leave", "cancel"))),
    ),
    # A key that is to be held until the start of its job is held to its end.
    "key_until_the_start_goes_on": lambda: (
        in_memory("_has_let_go", _always(False)),
        in_sql(("holder", "j.attempt > 0", "j.attempt < 0")),
        in_postgres(("enqueue", "$17::double precision[]", "array_replace($17::double precision[], '-infinity', 0)")),
    ),
    # The leases of one worker end, and so do all others.
    "leases_of_every_worker_end": lambda: (
        in_memory("end_leases", _of_every_worker),
        in_sql(("end_leases", "and worker = :worker", "and :worker is not null")),
        in_postgres(("end_leases", "j.worker = $2", "$2::text is not null")),
    ),
    # A window that has run out is swept though its job is live.
    "window_ends_before_its_job": lambda: (
        in_memory("_is_live", lambda _: lambda *_: False),
        in_sql(("windows_over", "and j.state in", "and false and j.state in")),
        in_postgres(("sweep_keys", "and j.lane = e.lane", "and false")),
    ),
}


BESIDE_THE_JOBS: dict[str, Callable[[], tuple[Patch, ...]]] = {
    # A run that ends without being done leaves its group shut: its job waits for ever.
    "a_run_leaves_its_group_shut": lambda: (
        in_memory("_leave", _without_opening),
        in_memory("add", _without_opening, sqlite_settle.Leaving),
        in_postgres(("leave", "where a.group_name is not null group by", "where false group by")),
    ),
    # So does a requeue.
    "a_requeue_leaves_its_group_shut": lambda: (
        in_memory("_requeue", _without_opening),
        in_memory("requeue", _without_opening, operations),
        in_postgres(("requeue", "where g.group_name is not null", "where false")),
    ),
    # All groups are offered one place a turn.
    "weights_do_not_count": lambda: (
        in_memory("_turn", _with_weight_one, memory_turns.HeapLevel),
        in_sql(("weight", "select weight", "select 1")),
        in_postgres(("set_weight", "values ($1, $2, $3)", "values ($1, $2, 1 + 0 * $3::integer)")),
    ),
    # The steps of a job that was removed stay, for the next job with its id.
    "steps_outlive_their_job": lambda: (
        in_memory("_remove", _remembering_steps),
        in_sql(("remove_steps", "where job = ?", "where job = ? and false")),
        in_postgres(
            ("prune_few", "where s.job = any (array[g.id])", "where false and s.job = any (array[g.id])"),
            ("forget_steps", "where s.job", "where false and s.job"),
        ),
    ),
    # A process that was frozen goes on with an operation that another has taken over.
    "bulk_step_of_any_turn": lambda: (
        in_memory("current", _of_any("turn"), memory_bulk.Bulks),
        in_sql(("current_bulk", "turn = :turn", "true")),
        in_postgres(("current_bulk", "turn = $2", "$2::integer is not null")),
    ),
    # A step whose answer was lost is written again.
    "bulk_step_twice": lambda: (
        in_memory("current", _of_any("behind"), memory_bulk.Bulks),
        in_sql(("current_bulk", "cursor is :behind", "true")),
        in_postgres(("current_bulk", "cursor is not distinct from $3", "coalesce($3::text, '') is not null")),
    ),
    # A living operation is taken over.
    "bulk_taken_from_the_living": lambda: (
        in_memory("_interrupted", _always(True), memory_bulk.Bulks),
        in_sql(("take_bulks", "abs(:now - seen_at) >= :silence", "true")),
        in_postgres(("take_bulks", "abs((select now from clock) - b.seen_at) >= $4", "$4::bigint is not null")),
    ),
    # A job goes into another queue, and its key stays behind.
    "key_of_a_changed_job_stays": lambda: (
        in_memory("move", _always(True), keys.Keys),
        in_memory("_move_key", _always(True), sqlite_edits),
        in_memory("_move_key", _left_behind, postgres_edits),
    ),
    # An id that belongs to another job is taken for a repeat.
    "ids_of_others_are_taken": lambda: (
        in_memory("is_same", _always(True), dedup),
        in_memory("is_same", _always(True), postgres_enqueue),
    ),
    # A request that was made before is made again.
    "requests_are_not_remembered": lambda: (
        in_memory("knows", _always(False), memory_requests.Requests),
        in_sql(("recall_request", "where caller = :caller", "where false and caller = :caller")),
        in_postgres(("claim_request", "where r.until <= hawser.now($1) and hawser.there(r.jobs, r.day) = '{}'", "where true")),
    ),
    # An action leaves no audit record.
    "actions_are_not_noted": lambda: (
        in_memory("_note", _never),
        in_sql(("note", "values (:at, :by, :action, :target, :count, :reason, :about)", _NOTHING_NOTED)),
        in_postgres(
            (
                "note",
                "values (hawser.now($1), $2, $3, $4, $5, $6, $7)",
                "select hawser.now($1), $2, $3, $4, $5, $6, $7 where false",
            )
        ),
    ),
    # The groups of one queue count the dead jobs of all queues.
    "groups_of_any_queue": lambda: (
        in_memory("of", _of_any_queue, memory_groups.Groups),
        in_sql(("dead_groups", "where (:queue is null or queue = :queue)", "where (:queue is null or true)")),
        in_postgres(("dead_groups", "($1::text is null or l.queue = $1)", "($1::text is null or true)")),
    ),
    # A claimer gets the jobs that it leaves to others.
    "left_jobs_are_given_out": lambda: (
        in_memory("_without", _without_nothing),
        in_memory("LaneCursor", _nothing_left, sqlite_turns),
        in_postgres(
            ("peek", "j.id <> all ($9::uuid[])", "$9::uuid[] is not null"),
            ("take", "j.id <> all ($12::uuid[])", "$12::uuid[] is not null"),
        ),
    ),
    # The time for which no worker accepts a job begins anew with each worker that declines it.
    "each_decline_begins_anew": lambda: tuple(
        in_memory("merged", _from_the_last_note, store) for store in (memory_store, sqlite_declined, postgres_declined)
    ),
    # A key that was revoked is still live.
    "revoked_key_lives": lambda: (
        in_memory("record", _without("revoked_at"), api_keys._Held),
        in_sql(("api_keys", "revoked_at, used_at", "null, used_at")),
        in_postgres(("api_keys", "revoked_at, used_at", "null, used_at")),
    ),
    # A key is live after its time.
    "expired_key_lives": lambda: (
        in_memory("record", _without("expires_at"), api_keys._Held),
        in_sql(("api_keys", "expires_at, revoked_at", "null, revoked_at")),
        in_postgres(("api_keys", "expires_at, revoked_at", "null, revoked_at")),
    ),
    # Putting a key again brings it back.
    "key_put_again_revives": lambda: (
        in_memory("put", _put_over, api_keys.ApiKeys),
        in_sql(("put_api_key", "on conflict do nothing", "on conflict (id) do update set revoked_at = null")),
        in_postgres(("put_api_key", "do nothing", "do update set revoked_at = null")),
    ),
    # The rollups of one queue are those of all.
    "rollups_of_all_queues": lambda: (
        in_memory("rollups", _of_all_queues),
        in_sql(("rollups", "queue = :queue", "true")),
        in_postgres(("rollups", "l.queue = $3", "true")),
    ),
    # What a worker measured is counted as longer than it was.
    "measured_in_the_next_bucket": lambda: (
        in_memory("event_of", _in_the_next_bucket, memory_store),
        in_memory("event_of", _in_the_next_bucket, operations),
        in_memory("event_of", _in_the_next_bucket, charts),
    ),
}
"""Bugs of what the oracle does not play, or seldom: the contract has to notice."""

DOOR: dict[str, Callable[[], tuple[Patch, ...]]] = {
    # Any key may do anything.
    "roles_are_not_asked": lambda: (in_memory("admit", _admits_with_all_roles, identity.Gate),),
    # A key may enqueue any task.
    "tasks_are_not_asked": lambda: (in_memory("may_enqueue", _always(True), identity.Identity),),
    # The public part of a key is enough.
    "secret_is_not_compared": lambda: (in_memory("compare_digest", _always(True), hmac),),
    # What was once read of keys is believed for ever.
    "keys_are_read_once": lambda: (
        mock.patch.object(identity, "BELIEVED_FOR", float("inf")),
        mock.patch.object(identity, "FRESH_FOR", float("inf")),
    ),
    # A run that one key has claimed is settled by another.
    "runs_belong_to_every_key": lambda: (in_memory("_mine", _all_mine, pull),),
    # Without a key everybody on this machine is taken for the user of the server.
    "sockets_of_others_are_ours": lambda: (in_memory("_is_own", _always(True), keyless.OwnUser),),
    # No rate is held.
    "rates_are_not_held": lambda: (in_memory("take", _always(0.0), Bucket),),
}
"""Bugs of the door: the tests of the HTTP API have to notice."""

ALL = MUTANTS | BESIDE_THE_JOBS | DOOR


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Have this bug in every store."""
    patches = ALL[name]()
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


@contextmanager
def planted_by_environment() -> Iterator[None]:
    """Have the bug that the environment names, or none: so that a whole test run can be put to the test."""
    name = os.environ.get(VARIABLE)
    if not name:
        yield
        return
    with planted(name):
        yield
