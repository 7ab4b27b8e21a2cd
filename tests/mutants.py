"""Known bugs, planted on purpose: a test layer that does not notice them proves nothing.

`planted(name)` breaks the stores, or the door of the HTTP API, for as long as it lasts. The bugs of the SQL stores are changes to
their statements; each says what it replaces, so that a statement which has changed since is an error and not a mutant that lives
unseen.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import Any
from unittest import mock

import msgspec
from msgspec import structs

from hawser import context
from hawser.api import identity, keyless, pull
from hawser.api.rate import Bucket
from hawser.handler import ledger
from hawser.handler.ledger import Ledger
from hawser.handler.waiting import WaitingLedger
from hawser.job import State
from hawser.stores import dedup, order
from hawser.stores.breakers import KeptBreaker
from hawser.stores.debounce import Debouncing
from hawser.stores.memory import MemoryStore, api_keys, keys, leases
from hawser.stores.memory import batches as memory_batches
from hawser.stores.memory import bulk as memory_bulk
from hawser.stores.memory import depth as memory_depth
from hawser.stores.memory import expiry as memory_expiry
from hawser.stores.memory import group_rules as memory_group_rules
from hawser.stores.memory import groups as memory_groups
from hawser.stores.memory import jobs as memory_jobs
from hawser.stores.memory import limits as memory_limits
from hawser.stores.memory import operations as memory_operations
from hawser.stores.memory import output as memory_output
from hawser.stores.memory import requests as memory_requests
from hawser.stores.memory import runs as memory_runs
from hawser.stores.memory import steps as memory_steps
from hawser.stores.memory import store as memory_store
from hawser.stores.memory import turns as memory_turns
from hawser.stores.memory import upstream as memory_upstream
from hawser.stores.memory import waits as memory_waits
from hawser.stores.memory.events import KeptEvents
from hawser.stores.postgres import PostgresStore, charts, following, lane_catalog, stored_functions
from hawser.stores.postgres import declined as postgres_declined
from hawser.stores.postgres import edits as postgres_edits
from hawser.stores.postgres import enqueue as postgres_enqueue
from hawser.stores.postgres import operator_side as postgres_side
from hawser.stores.postgres import output as postgres_output
from hawser.stores.postgres import steps as postgres_steps
from hawser.stores.postgres import turns as postgres_turns
from hawser.stores.postgres.dependencies import DependencyStatements
from hawser.stores.postgres.events import EventStatements
from hawser.stores.postgres.following import FollowStatements
from hawser.stores.postgres.server import SQL as POSTGRES_SQL
from hawser.stores.postgres.server import in_schema
from hawser.stores.redis import RedisStore
from hawser.stores.redis import queries as redis_queries
from hawser.stores.redis import runs as redis_runs
from hawser.stores.redis import scripts as redis_scripts
from hawser.stores.redis import steps as redis_steps
from hawser.stores.sqlite import batches as sqlite_batches
from hawser.stores.sqlite import claim as sqlite_claim
from hawser.stores.sqlite import debounce as sqlite_debounce
from hawser.stores.sqlite import declined as sqlite_declined
from hawser.stores.sqlite import dependencies as sqlite_dependencies
from hawser.stores.sqlite import edits as sqlite_edits
from hawser.stores.sqlite import enqueue as sqlite_enqueue
from hawser.stores.sqlite import foreign as sqlite_foreign
from hawser.stores.sqlite import operations, schedules
from hawser.stores.sqlite import operator_side as sqlite_side
from hawser.stores.sqlite import output as sqlite_output
from hawser.stores.sqlite import running as sqlite_running
from hawser.stores.sqlite import settle as sqlite_settle
from hawser.stores.sqlite import steps as sqlite_steps
from hawser.stores.sqlite import store as sqlite_store
from hawser.stores.sqlite import turns as sqlite_turns
from hawser.stores.sqlite import tx as sqlite_tx
from hawser.stores.sqlite import waits as sqlite_waits
from hawser.stores.sqlite.store import SqliteStore
from hawser.stores.sqlite.tx import SQL, Tx
from hawser.supervisor.extender import Extender
from hawser.worker import settler
from hawser.worker.executor import Executor

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


def in_functions(*changes: tuple[str, str, str]) -> Patch:
    """Replace texts in the files of the database's own functions; a store that is opened meanwhile gets them."""
    right = stored_functions._text

    def broken(name: str) -> str:
        text = right(name)
        for file, old, new in changes:
            if file == name:
                assert old in text, f"the functions of {file} have changed: adapt their mutant"
                text = text.replace(old, new)
        return text

    return mock.patch.object(stored_functions, "_text", broken)


_NONE_IS_PLAIN = ("settle", "if not text or #text ~= 27 or", "if true or")
"""Each job is settled apart in Redis."""


def in_redis(*changes: tuple[str, str, str]) -> Patch:
    """Replace texts in scripts of the Redis store, for both kinds of lanes."""
    broken = dict(redis_scripts.read())
    for script, right, wrong in changes:
        assert right in broken[script], f"the script {script} has changed: adapt its mutant"
        broken[script] = broken[script].replace(right, wrong)
    return mock.patch.dict(RedisStore.__init__.__kwdefaults__, scripts=redis_scripts.load_all(broken))


FINISH = "finish", "finish_plain"
"""The statements of the PostgreSQL store for runs that were done."""

_ANY_LEASE = (
    ("held", "select j.seq, j.id, j.lease,", "select j.seq, j.id, want.value ->> 1,"),
    ("held", "j.lease = want.value ->> 1 and ", ""),
)
_NOTHING_NOTED = "select :at, :by, :action, :target, :count, :reason, :about where false"
_ENDED_OR_NOT = "coalesce(j.lease_until, j.started_at + j.leased_for)"
_IS_OVER = "select from hawser.step as s where s.job = $2::uuid and s.name = $4::text and s.until <= hawser.now($1::bigint)"
_SHUT = "if UNGROUPED[h.kind] then forget_group(r.lane, group_of(v, h)) end"
_SHUT_WOKEN = "    local h, _, v = look(id) if UNGROUPED[h.kind] then forget_group(r.lane, group_of(v, h)) end\n"
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


def _always_closed(state_of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **fields: state_of(**{**fields, "closed": True})


def _any_end_will_do(is_over: Callable[..., Any]) -> Callable[..., Any]:
    return lambda standing, on: is_over(standing, "ended" if on == "done" else on)


def _gathering_on_any_end(hold_run: Callable[..., Any]) -> Callable[..., Any]:
    """The parent waits until its jobs have ended, however."""
    right = MemoryStore._hold

    def mutant(*arguments: Any) -> None:
        with mock.patch.object(MemoryStore, "_hold", lambda store, row, jobs, due, _: right(store, row, jobs, due, "ended")):
            hold_run(*arguments)

    return mutant


def _depending_on_any_end(depend: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tx, waiter, jobs, _: depend(tx, waiter, jobs, "ended")


def _parents_on_any_end(arguments_of: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(*asked: Any) -> Any:
        given, far, ids, _, *others = arguments_of(*asked)
        return given, far, ids, [True], *others

    return mutant


def _only_new_members(count: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tx, batch, before, after: count(tx, batch, None, after) if before is None else None


def _only_next_behind(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda store, batch: {batch, *store._dependencies.waiters(batch)}


def _none(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_: None


def _nothing_against(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_: {}


def _expecting_none(state_of: Callable[..., Any]) -> Callable[..., Any]:
    """Before a member's own jobs are added it looks as if none were expected."""
    return lambda **fields: state_of(**{**fields, "left": fields["left"] - (fields["left"] == 1)})


def _folded_first(follow_on: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(tx: Any, *rest: Any) -> Any:
        sqlite_batches.fold(tx)
        return follow_on(tx, *rest)

    return mutant


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


def _reads_what_is_left(reader: Callable[..., Any]) -> Callable[..., Any]:
    return lambda where, left, **options: reader(where, frozenset(), **options)


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


def _judged_by_async(holds: Callable[..., bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `_judged_by`, for a method of the seam."""

    def make(work: Callable[..., Any]) -> Callable[..., Any]:
        async def mutant(*arguments: Any) -> Any:
            with mock.patch.object(MemoryStore, "_holds", holds):
                return await work(*arguments)

        return mutant

    return make


def _forgetting_time_outs(arrive: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(store: Any, arrival: Any) -> Any:
        known = store._made_steps.get(arrival.id, {}).get(arrival.name)
        step = await arrive(store, arrival)
        if known is not None and step is not None and step.kind == "timeout":
            store._made_steps[arrival.id][arrival.name] = known
        return step

    return mutant


def _forgetting_time_outs_there(arrive: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(steps: Any, arrival: Any) -> Any:
        step = await arrive(steps, arrival)
        if step is not None and step.kind == "timeout":
            again = "update hawser.step set kind = 'woken' where job = $1 and name = $2"
            await _at_once(steps._server, again, arrival.id, arrival.name)
        return step

    return mutant


async def _at_once(server: Any, statement: str, *arguments: Any) -> None:
    await server.connection("operate").rows(in_schema(statement, server.address.schema), *arguments)


def _without_waking(go_on: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(dependencies: Any, purpose: Any, **which: bool) -> None:
        async def nothing(*_: Any, **__: Any) -> None:
            pass

        with mock.patch.object(DependencyStatements, "wake_waiting", nothing):
            await go_on(dependencies, purpose, **which)

    return mutant


def _forgetting_events(emit: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(store: Any, name: str, body: bytes, keep: float) -> Any:
        store._events.kept.pop(name, None)
        return await emit(store, name, body, keep)

    return mutant


def _forgetting_events_there(emit: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(events: Any, name: str, body: bytes, keep: float) -> Any:
        await _at_once(events._server, "delete from hawser.event where name = $1", name)
        return await emit(events, name, body, keep)

    return mutant


def _forgetting_waits(note: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(store: Any, row: Any, hold: Any, now: int) -> Any:
        store._made_steps.get(row.new.id, {}).pop(hold.name, None)
        return note(store, row, hold, now)

    return mutant


def _forgetting_waits_there(work: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(statements: Any, con: Any, held: Any) -> None:
        forget = in_schema("delete from hawser.step where job = $1 and name = $2", statements._server.address.schema)
        await con.executemany(forget, [(settlement.id, hold.name) for settlement, hold in held])
        await work(statements, con, held)

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


def _as_it_ended(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda suspended, value, *, failed: (value if not failed or isinstance(value, Exception) else suspended, failed)


def _forgetting_names(begin: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(ledger: Any, *arguments: Any) -> Any:
        ledger._used.clear()
        return begin(ledger, *arguments)

    return mutant


def _as_a_plain_error(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda ledger, text: ValueError(text)


async def _write_nothing(*_: Any) -> None:
    pass


def _without_its_event(claim: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(store: Any, *arguments: Any, **options: Any) -> Any:
        claimed = await claim(store, *arguments, **options)
        for job in claimed:
            for step in store._made_steps.get(job.id, {}).values():
                store._events.kept.pop(step[6], None)
        return claimed

    return mutant


def _beside_its_children(_: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(ledger: Any, jobs: Any, name: str) -> list[Any]:
        children = ledger._children(jobs, name)
        store = await ledger._rules.access.ready()
        await store.enqueue(children)
        while True:
            ends = await store.ended([child.id for child in children])
            if all(end is not None and end.state.finished for end in ends):
                return [msgspec.json.decode(end.result) for end in ends]
            await asyncio.sleep(0.01)

    return mutant


def _whatever_it_is(passed: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(ledger: Any, found: Any, hold: Any, into: Any) -> Any:
        return passed(ledger, structs.replace(found, kind="event") if found.kind == "step" else found, hold, into)

    return mutant


def _in_a_task(_: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(ledger: Any, event: str, timeout: object, into: Any) -> Any:
        hold = ledger._hold_for(event, timeout)
        while (found := await ledger._come_to(hold)).open:
            await asyncio.sleep(0.01)
        return ledger._passed(found, hold, into)

    return mutant


def _a_second_ahead(to_us: Callable[..., int]) -> Callable[..., int]:
    return lambda seconds: to_us(seconds) + 1_000_000


def _without_extending(_: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(extender: Any, *_: Any) -> float:
        return float(extender._clock())

    return mutant


def _all_of_it(appended: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(last: Any, output: Any) -> Any:
        place = last.place if last.lease == output.lease else 0
        return appended(last, structs.replace(output, first=place))

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


def _without_opening_async(work: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(*arguments: Any, **options: Any) -> Any:
        with mock.patch.object(memory_turns.LaneGroups, "_reopen", mock.Mock()):
            return await work(*arguments, **options)

    return mutant


def _acting_without_opening(making: Callable[..., Any]) -> Callable[..., Any]:
    return lambda change: _without_opening(making(change))


def _counting_in_sqlite(prepare: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(store: Any, settlement: Any, *rest: Any) -> Any:
        batch = (await store.get(settlement.id)).batch
        await store._write(lambda tx: tx.count_member(batch, State.READY, State.DONE))
        return await prepare(store, settlement, *rest)

    return mutant


def _counting_no_end(run: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(*arguments: Any) -> Any:
        with mock.patch.object(Tx, "count_member", _only_new_members(Tx.count_member)):
            return run(*arguments)

    return mutant


def _counting_in_postgres(prepare: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(store: Any, settlement: Any, *rest: Any) -> Any:
        line, table = store.server.connection("operate"), f"{store.address.schema}.batch_change"
        await line.rows(f"insert into {table} (batch, done) values ($1, 1)", (await store.get(settlement.id)).batch)
        return await prepare(store, settlement, *rest)

    return mutant


def _losing_arrivals(work: Callable[..., Any]) -> Callable[..., Any]:
    """What came to groups of the PostgreSQL store is forgotten."""

    async def mutant(owner: Any, *arguments: Any, **options: Any) -> Any:
        answer = await work(owner, *arguments, **options)
        server = owner.server if hasattr(owner, "server") else owner._server
        await server.connection("operate").rows(f"delete from {server.address.schema}.arrived")
        return answer

    return mutant


def _losing_ended_runs(work: Callable[..., Any]) -> Callable[..., Any]:
    """What was told of runs of groups that have ended is forgotten."""

    async def mutant(store: Any, *arguments: Any, **options: Any) -> Any:
        statement = f"delete from {store.server.address.schema}.freed where group_name is not null"
        await store.server.connection("operate").rows(statement)
        return await work(store, *arguments, **options)

    return mutant


def _without_triggers(work: Callable[..., Any]) -> Callable[..., Any]:
    """The triggers that free places do not."""

    async def mutant(store: Any, *arguments: Any, **options: Any) -> Any:
        line, table = store.server.connection("operate"), f"{store.address.schema}.job"
        await line.rows(f"alter table {table} disable trigger user")
        try:
            return await work(store, *arguments, **options)
        finally:
            await line.rows(f"alter table {table} enable trigger user")

    return mutant


def _keeping_places(work: Callable[..., Any]) -> Callable[..., Any]:
    """Runs that end here are counted as running still."""
    moved, moved_there = memory_depth.Depth.move, Tx.move

    def move(depth: Any, row: Any, by: int) -> None:
        if not (row.state == "running" and by < 0):
            moved(depth, row, by)

    def move_there(tx: Any, queue: str, task: str, priority: int, place: Any, by: int) -> None:
        if not (place == "running" and by < 0):
            moved_there(tx, queue, task, priority, place, by)

    def mutant(*arguments: Any, **options: Any) -> Any:
        with mock.patch.object(memory_depth.Depth, "move", move), mock.patch.object(Tx, "move", move_there):
            return work(*arguments, **options)

    return mutant


def _keeping_places_of_cancelled(work: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(owner: Any, run: Any, step: Any, *arguments: Any, **options: Any) -> Any:
        leave = _keeping_places(work) if step.state == "cancelled" else work
        return leave(owner, run, step, *arguments, **options)

    return mutant


def _with_weight_one(turn: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(level: Any, name: str, number: int) -> Any:
        group = turn(level, name, number)
        group.weight = 1
        return group

    return mutant


def _as_one_group(running: Callable[..., Any]) -> Callable[..., Any]:
    return lambda depth, task, group: depth.running(task)


def _always(answer: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda _: lambda *arguments: answer


def _always_later(answer: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    async def mutant(*_: Any) -> Any:
        return answer

    return lambda _: mutant


def _as_it_stands(judged: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(kept: Any, verdict: Any, now: int) -> Any:
        return judged(structs.replace(kept, open=not verdict.open), structs.replace(verdict, revision=kept.revision), now)

    return mutant


def _of_persons_too(judged: Callable[..., Any]) -> Callable[..., Any]:
    return lambda kept, verdict, now: judged(structs.replace(kept, by_hand=False), verdict, now)


def _at_once_again(probed: Callable[..., Any]) -> Callable[..., Any]:
    return lambda kept, *run: structs.replace(probed(kept, *run), probe_at=kept.probe_at)


def _first_thousand(overdue: Callable[..., Any]) -> Callable[..., Any]:
    return lambda events, now: islice(overdue(events, now), 1_000)


def _by_the_time_of_the_run(came_to: Callable[..., Any]) -> Callable[..., Any]:
    return lambda came, until, now: came_to(None if until is not None and until <= now else came, until, now)


def _whenever_it_came(came_to: Callable[..., Any]) -> Callable[..., Any]:
    return lambda came, until, now: came_to(came, until if came is None else None, now)


def _whenever_it_came_there(arrive: Callable[..., Any]) -> Callable[..., Any]:
    async def mutant(steps: Any, arrival: Any) -> Any:
        endless = "update hawser.step set until = null where job = $1 and name = $2 and event in (select name from hawser.event)"
        await _at_once(steps._server, endless, arrival.id, arrival.name)
        return await arrive(steps, arrival)

    return mutant


def _without_an_end(judge: Callable[..., Any]) -> Callable[..., Any]:
    def mutant(debouncing: Any, job: Any) -> Any:
        judged = judge(debouncing, job)
        due = debouncing._now + round(job.delay * 1_000_000)
        debouncing.replacements[:] = [each._replace(run_at=due) if each.job is job else each for each in debouncing.replacements]
        return judged

    return mutant


def _all_at_once(spread_delays: Callable[..., list[int]]) -> Callable[..., list[int]]:
    return lambda count, spread, delay: spread_delays(count, 0, delay)


def _of_persons_only(with_breakers: Callable[..., Any]) -> Callable[..., Any]:
    return lambda rooms, probes, now: with_breakers(rooms, {task: at for task, at in probes.items() if not at}, now)


def _older_than_all(judge: Callable[..., Any]) -> Callable[..., Any]:
    def broken(self: Any, job: Any) -> Any:
        look = self._look
        self._look = lambda scope: (found := look(scope)) and found._replace(newest="")
        try:
            return judge(self, job)
        finally:
            self._look = look

    return broken


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
        in_redis(
            ("shared/rooms", "call('HGET', P .. 's', name .. '|running')", "call('HGET', P .. 'taskruns', '|' .. name)"),
            (
                "shared/limits",
                "if rule('task', l.t) then\n",
                "add('taskruns', '|' .. l.q, max(by, 0))\n  if rule('task', l.t) then\n",
            ),
            ("shared/limits", "add('taskruns', l.t, by)", "add('taskruns', l.t, max(by, 0))"),
        ),
    ),
    # A run that is taken back, or ends as cancelled, goes on counting against its limit.
    "a_reclaim_frees_no_place": lambda: (
        in_memory("_reclaim", _keeping_places),
        in_memory("reclaim", _keeping_places, sqlite_store),
        in_memory("reclaim", _without_triggers, PostgresStore),
        in_redis(
            ("reclaim", "local step = leave(", "add('taskruns', l.t, 1)\n  local step = leave("),
        ),
    ),
    "a_cancel_frees_no_place": lambda: (
        in_memory("_leave", _keeping_places_of_cancelled),
        in_memory("add", _keeping_places_of_cancelled, sqlite_settle.LeaveBatch),
        in_memory("settle", _without_triggers, PostgresStore),
        in_redis(("shared/ending", "count_runs(l, -1, group)", "count_runs(l, state == CANCELLED and 0 or -1, group)")),
    ),
    # No place is kept for what has waited for long under a lower priority.
    "priorities_do_not_age": lambda: (
        in_memory("reserved", _always(0), order),
        in_memory("reserved", _always(0), postgres_turns),
        in_redis(("claim", "floor((places + turn % 10) / 10)", "0")),
    ),
    # What a queue says of ageing is not asked.
    "every_queue_ages_alike": lambda: (
        in_memory("ageing_of", _always(order.AGED_US), memory_runs),
        in_memory("ageing_of", _always(order.AGED_US), sqlite_tx),
        in_memory("ageing_of", _always(order.AGED_US), lane_catalog),
        in_redis(("shared/claim_turns", "cjson.decode(policy).ageing", "600")),
    ),
    "older_calls_replace_newer_ones": lambda: (
        in_memory("judge", _older_than_all, Debouncing),
        in_redis(("shared/debounce", "if not is_above(j.id, newest) then", "if false then")),
    ),
    # A verdict counts, whatever has become of the breaker since it was looked at.
    "a_breaker_opens_twice": lambda: (in_memory("judged", _as_it_stands, KeptBreaker),),
    # Jobs of a task whose breaker is open are given out, and lose attempts.
    "an_open_breaker_keeps_nothing_back": lambda: (
        in_memory("with_breakers", _of_persons_only, memory_runs),
        in_memory("with_breakers", _of_persons_only, sqlite_claim),
        in_postgres(("lane_catalog", "from hawser.breaker where open", "from hawser.breaker where false")),
        in_redis(("shared/rooms", "return 0, probe_at > 0 and probe_at or nil", "return places, opens")),
    ),
    # The starts of a period are not counted.
    "rate_is_not_kept": lambda: (
        in_memory("start", _never, memory_limits.Limits),
        in_sql(("note_starts", "where kind = ?", "where false and kind = ?")),
        in_postgres(
            ("put_limit", "$7, $8, $9", "$7, nullif($8::integer, $8::integer), $9"),
            ("put_limit", "starts = excluded.starts", "starts = null"),
        ),
        in_redis(
            ("shared/rooms", "[w.slot % SLOTS] + count", "[w.slot % SLOTS]"),
            ("shared/rooms", "w.sum = w.sum + count", ""),
        ),
    ),
    # A settlement is let through whatever its lease number.
    "no_fence": lambda: (
        in_memory("_settle", _judged_by(_any_lease)),
        in_sql(
            *_ANY_LEASE,
            ("finish", "and lease = ?", "and ? is not null"),
            ("finish_all", "and j.lease = want.value ->> 2", ""),
            only=(sqlite_settle, "settle"),
        ),
        in_postgres(
            *((name, "j.lease = w.lease", "w.lease is not null") for name in ("finish", "leave", "held")),
            ("finish_plain", "j.lease = ($4::bigint[])[width_bucket(j.id, $2)]", "$4 is not null"),
        ),
        in_redis(
            ("settle", "r.state == RUNNING and r.lease == lease", "r.state == RUNNING"),
            ("settle", "state ~= RUNNING or lease ~= un('>I8', text, 17) or", "state ~= RUNNING or"),
        ),
    ),
    # An extension is let through whatever its lease number.
    "extend_without_fence": lambda: (
        in_memory("_extend", _judged_by(_any_lease)),
        in_sql(*_ANY_LEASE, only=(sqlite_store, "extend")),
        in_postgres(("extend", "j.lease = w.lease", "true"), ("extend", "j.id::text, j.lease,", "j.id::text, w.lease,")),
        in_redis(("extend", "or r.lease ~= lease ", "")),
    ),
    # A settlement is refused when its lease has run out, although nobody reclaimed the run.
    "late_settlement_is_refused": lambda: (
        in_memory("_settle", _judged_by(_while_it_lasts)),
        in_memory("_finish", _always(False), sqlite_settle),
        in_memory("held", _only_while_they_last, sqlite_settle),
        in_postgres(*((name, "and j.running", "and j.running and j.lease_until > c.now") for name in FINISH)),
        in_redis(
            ("settle", "RUNNING and r.lease == lease", "RUNNING and r.lease == lease and r.until_ > now"),
            _NONE_IS_PLAIN,
        ),
    ),
    # The attempt is counted when it is settled, so one that crashed never counts.
    "attempt_at_settle": lambda: (
        in_memory("_start", _start_without_attempt),
        in_memory("_settle", _settle_with_attempt),
        in_sql(
            ("start", "attempt = attempt + 1, ", ""),
            ("held", "j.attempt,", "j.attempt + 1,"),
            ("finish", "set state = 'done',", "set state = 'done', attempt = attempt + 1,"),
            ("finish_all", "set state = 'done',", "set state = 'done', attempt = j.attempt + 1,"),
        ),
        in_postgres(
            ("take", "attempt = j.attempt + 1, ", ""),
            ("finish", "g.lease, g.attempt,", "g.lease, g.attempt + 1,"),
            ("finish_plain", "g.lease, g.attempt,", "g.lease, g.attempt + 1,"),
            ("held", "j.attempt,", "j.attempt + 1,"),
        ),
        in_redis(
            ("claim", "m[i], base + 1, 1, 0", "m[i], base + 1, 0, 0"),
            ("claim", "r.attempt + 1, r.crashes", "r.attempt, r.crashes"),
            ("claim", "0, 0, lease, 1, 0", "0, 0, lease, 0, 0"),
            ("settle", "    local attempt, l =", "    r.attempt = r.attempt + 1\n    local attempt, l ="),
            _NONE_IS_PLAIN,
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
        in_redis(("reclaim", "if h and r.state == RUNNING and num(r.claim) == claim then", "if h then")),
    ),
    # A step is recorded whatever the lease number of its run.
    "step_without_fence": lambda: (
        in_memory("_record_step", _judged_by(_any_lease)),
        mock.patch.object(sqlite_steps, "held", _with_sql_of(_ANY_LEASE, sqlite_running.held)),
        in_postgres(
            ("record_steps", "where j.lease = w.lease and j.running", "where j.running"),
            (
                "record_steps",
                "join held as r on r.id = w.id and r.lease = w.lease order by",
                "join held as r on r.id = w.id order by",
            ),
            ("record_steps", "join held as r on r.id = w.id and r.lease = w.lease left", "join held as r on r.id = w.id left"),
        ),
        in_redis(("record_steps", "or r.lease ~= lease then", "then")),
    ),
    # A second record under a name replaces the first.
    "last_record_of_a_step_wins": lambda: (
        in_memory("_record_step", _forgetting_steps),
        in_sql(("record_step", "do nothing", "do update set value = excluded.value, at = excluded.at")),
        in_postgres(("record_steps", "do nothing", "do update set value = excluded.value, at = excluded.at")),
        in_redis(("record_steps", "if not kept then", "if true then")),
    ),
    # Attempts are not counted from the last step on.
    "attempts_before_a_step_count": lambda: (
        in_memory("_record_step", _keeping_attempts),
        in_sql(("count_from_step", "attempt > 1", "false")),
        in_postgres(("record_steps", "r.attempt > 1", "false")),
        in_redis(("record_steps", "r.attempt, r.extra = 1, 1", "r.extra = 1")),
    ),
    # What a wait came to is decided whatever the lease number of the run.
    "wait_without_fence": lambda: (
        in_memory("arrive", _judged_by_async(_any_lease)),
        mock.patch.object(sqlite_waits, "held", _with_sql_of(_ANY_LEASE, sqlite_running.held)),
        in_postgres(
            ("come_to", "$3::bigint", "coalesce((select j.lease from hawser.job as j where j.id = $2::uuid), $3::bigint)")
        ),
        in_redis(("arrive", "or r.lease ~= lease then", "then")),
    ),
    # A time-out is raised and not recorded: the next run may see the event.
    "time_out_is_not_recorded": lambda: (
        in_memory("arrive", _forgetting_time_outs),
        in_sql(("record_wait", "event = excluded.event", "event = excluded.event where excluded.kind <> 'timeout'")),
        mock.patch.object(
            postgres_steps.StepStatements, "arrive", _forgetting_time_outs_there(postgres_steps.StepStatements.arrive)
        ),
        in_redis(("arrive", "call('HSET', key, name, kept)", "if kind ~= 'timeout' then call('HSET', key, name, kept) end")),
    ),
    # A job is held without a look whether its event has come meanwhile.
    "wait_without_a_look": lambda: (
        in_memory("is_over", _always(False), memory_waits),
        in_memory("is_over", _always(False), sqlite_waits),
        mock.patch.object(DependencyStatements, "go_on", _without_waking(DependencyStatements.go_on)),
        in_redis(("shared/waiting", "if call('HEXISTS', P .. 'events', event) == 1 or", "if false and")),
    ),
    # A second event of a name replaces the first.
    "last_event_wins": lambda: (
        in_memory("emit", _forgetting_events),
        in_sql(("emit", "do nothing", "do update set body = excluded.body, at = excluded.at")),
        mock.patch.object(EventStatements, "emit", _forgetting_events_there(EventStatements.emit)),
        in_redis(("emit", "if known then", "if false then")),
    ),
    # The time of a wait begins anew with each run that comes to it.
    "wait_begins_anew": lambda: (
        in_memory("_note_wait", _forgetting_waits),
        in_sql(("note_wait", "value = excluded.value,", "value = excluded.value, at = excluded.at, until = excluded.until,")),
        mock.patch.object(FollowStatements, "hold_all", _forgetting_waits_there(FollowStatements.hold_all)),
        in_redis(("shared/waiting", "if kept then", "if false then")),
    ),
    # A reclaim leaves the lease number as it is.
    "reclaim_keeps_lease": lambda: (
        in_memory("_reclaim", _reclaim_without_new_lease),
        in_sql(("leave", "lease = ?,", "lease = min(lease, ?),"), only=(sqlite_store, "reclaim")),
        in_postgres(("leave", "lease = j.lease + $2::integer", "lease = j.lease"), ("leave", "g.lease + $2::integer", "g.lease")),
        in_redis(("reclaim", "r.lease = r.lease + 1", "")),
    ),
    # Lease numbers begin anew when a job is requeued.
    "requeue_resets_lease": lambda: (
        in_memory("_requeue", _requeue_from_lease_zero),
        in_sql(("requeue", "attempt = 0,", "attempt = 0, lease = 0,")),
        in_postgres(("requeue", "c.now + g.later, g.lease,", "c.now + g.later, 0,")),
        in_redis(("shared/acting", "  r.attempt = 0\n", "  r.attempt, r.lease = 0, 0\n")),
    ),
    # What a queue says of its jobs' attempts is not asked for.
    "no_attempts_of_the_queue": lambda: (
        in_memory("attempts_of", _attempts_of_the_job_alone, memory_jobs),
        in_memory("attempts_of", _attempts_of_the_job_alone, sqlite_enqueue),
        in_postgres(("set_policy", "values ($1, $2, $3)", "values ($1, $2, nullif($3::integer, $3))")),
        in_redis(("control", "call('HSET', P .. 'maxes', a, c)", "call('HDEL', P .. 'maxes', a)")),
    ),
    # A schedule is put forward on whatever revision that was decided.
    "fire_on_any_revision": lambda: (
        in_memory("_advance", _any_revision),
        mock.patch.object(schedules, "_judged", _judged_on_any_revision(schedules._judged)),
        in_postgres(("fire", "$3::text[],", _CURRENT_REVISIONS)),
        in_redis(("fire", "if revision ~= (a.expect or false) then return 'stale' end", "")),
    ),
    # A tick that has its job makes another when its schedule begins anew.
    "tick_without_memory": lambda: (
        in_memory("_add", _forgetful),
        mock.patch.object(schedules, "_ticks", _without_memory_of_ticks(schedules._ticks)),
        in_postgres(("fire", "$28::bigint[]", "nullif($28::bigint[], $28)")),
        in_redis(("fire", "if not meta.i or", "if true or")),
    ),
    # A key stays held when its job has ended.
    "live_key_never_freed": lambda: (
        in_memory("end", _never, keys.Keys),
        in_sql(("free_key", "until is null", "until is null and false")),
        in_postgres(*((name, "k.until is null", "k.until is null and false") for name in (*FINISH, "leave", "cancel"))),
        in_redis(("shared/keys", "if until_ <= now then unhold", "if until_ > 0 and until_ <= now then unhold")),
    ),
    # A key that is to be held until the start of its job is held to its end.
    "key_until_the_start_goes_on": lambda: (
        in_memory("_has_let_go", _always(False)),
        in_sql(("holder", "j.attempt > 0", "j.attempt < 0")),
        in_postgres(("enqueue", "$17::double precision[]", "array_replace($17::double precision[], '-infinity', 0)")),
        in_redis(("shared/keys", "r.attempt > 0", "r.attempt < 0")),
    ),
    # The leases of one worker end, and so do all others.
    "leases_of_every_worker_end": lambda: (
        in_memory("end_leases", _of_every_worker),
        in_sql(("end_leases", "and worker = :worker", "and :worker is not null")),
        in_postgres(("end_leases", "j.worker = $2", "$2::text is not null")),
        in_redis(("end_leases", "about[1] == ARGV[5] and about[2]", "about[2]")),
    ),
    # A window that has run out is swept though its job is live.
    "window_ends_before_its_job": lambda: (
        in_memory("_is_live", lambda _: lambda *_: False),
        in_sql(("windows_over", "and j.state in", "and false and j.state in")),
        in_postgres(("sweep_keys", "and j.lane = e.lane", "and false")),
        in_redis(("shared/keys", "not h or r.state > RUNNING or not h.keyed", "true")),
    ),
}


BESIDE_THE_JOBS: dict[str, Callable[[], tuple[Patch, ...]]] = {
    # A run that ends without being done leaves its group shut: its job waits for ever.
    "a_run_leaves_its_group_shut": lambda: (
        in_memory("_leave", _without_opening),
        in_memory("add", _without_opening, sqlite_settle.LeaveBatch),
        in_postgres(("leave", "where a.group_name is not null group by", "where false group by")),
        in_redis(("shared/ending", "now + after)\n", f"now + after)\n    {_SHUT}\n")),
    ),
    # So does a requeue.
    "a_requeue_leaves_its_group_shut": lambda: (
        in_memory("_requeue", _without_opening),
        in_memory("requeue", _without_opening, operations),
        in_postgres(("requeue", "where g.group_name is not null", "where false")),
        in_redis(("shared/acting", "requeuing.count))\n", f"requeuing.count))\n  {_SHUT}\n")),
    ),
    # So does a rewind, the change of a waiting job, and the release of one that waited for others.
    "a_rewind_leaves_its_group_shut": lambda: (
        in_memory("rewind", _without_opening_async),
        in_memory("requeue", _without_opening, sqlite_steps),
        in_memory("rewind", _losing_arrivals, PostgresStore),
        in_redis(
            ("rewind", "if answer ~= 'done' then return answer end", f"if answer ~= 'done' then return answer end\n  {_SHUT}")
        ),
    ),
    "a_change_leaves_its_group_shut": lambda: (
        in_memory("change", _without_opening_async),
        in_memory("changing", _acting_without_opening, sqlite_edits),
        in_postgres(("change", "where o.group_name is not null", "where false")),
        in_redis(("shared/changing", "reopen_group(l.t, group_of(v, h))", "forget_group(r.lane, group_of(v, h))")),
    ),
    "a_release_leaves_its_group_shut": lambda: (
        in_memory("_release", _without_opening),
        in_memory("release", _without_opening, sqlite_dependencies),
        in_memory("go_on", _losing_arrivals, DependencyStatements),
        in_redis(
            ("shared/dependencies", "reopen_group(lane(r.lane).t, group_of(v, h))", "forget_group(r.lane, group_of(v, h))"),
        ),
    ),
    # So does a call that puts a debounced job off, and what wakes one from its wait.
    "a_debounce_leaves_its_group_shut": lambda: (
        in_memory("_replace_payload", _without_opening),
        in_memory("replace_payload", _without_opening, sqlite_debounce),
        in_postgres(("replace_payload", "where o.group_name is not null", "where false")),
        in_redis(("shared/debounce", "reopen_group(l.t, meta.g)", "forget_group(r.lane, meta.g)")),
    ),
    "a_wake_leaves_its_group_shut": lambda: (
        in_memory("_wake", _without_opening),
        in_memory("_wake", _without_opening, sqlite_waits),
        in_functions(("events", "from released as r where r.group_name is not null", "from released as r where false")),
        in_redis(("shared/waiting", "release(id, about[1])\n", f"release(id, about[1])\n{_SHUT_WOKEN}")),
    ),
    # All groups are offered one place a turn.
    "weights_do_not_count": lambda: (
        in_memory("_turn", _with_weight_one, memory_turns.HeapLevel),
        in_sql(("weight", "select weight", "select 1")),
        in_postgres(("set_weight", "values ($1, $2, $3)", "values ($1, $2, 1 + 0 * $3::integer)")),
        in_redis(("shared/claim_turns", "tonumber(groups.weights[level.queue .. '|' .. name] or 1)", "1")),
    ),
    # A run of a group ends, and the group that a limit keeps back does not hear of it.
    "a_run_leaves_its_limited_group_shut": lambda: (
        in_memory("_reopen_group", _never),
        in_memory("reopen_group", _never, Tx),
        in_memory("claim", _losing_ended_runs, PostgresStore),
        in_redis(("shared/turns", "for _, number in ipairs(lanes_of(task)) do reopen_lane(number, group) end", "")),
    ),
    # A limit per group counts all groups of its task together.
    "groups_are_counted_together": lambda: (
        in_memory("running_in_group", _as_one_group, memory_depth.Depth),
        in_sql(("running_in_group", "and group_name = ?", "and ? is not null")),
        in_postgres(("put_limit", "$9, $10, $11", "$9, $10 and false, $11")),
        in_redis(("shared/rooms", "call('HGET', P .. 'groupruns', name)", "call('HGET', P .. 'taskruns', task)")),
    ),
    # The starts of a group in a period are not counted.
    "rate_of_a_group_is_not_kept": lambda: (
        in_memory("_start_in_group", _never, memory_limits.Limits),
        in_sql(("group_state", "select head, slot, slots", "select head, slot, null")),
        in_postgres(
            ("put_limit", "$7, $8, $9", "$7, nullif($8::integer, $8::integer), $9"),
            ("put_limit", "starts = excluded.starts", "starts = null"),
        ),
        in_redis(("shared/rooms", "if f.starts then count_starts(", "if false then count_starts(")),
    ),
    # A job of an ordered group that waits for another attempt lets the others go first.
    "a_retry_loses_its_place": lambda: (
        in_memory("_kept", _never, memory_group_rules.GroupRules),
        in_sql(("live_head", "where id = ?", "where false and id = ?")),
        in_postgres(("put_limit", "$10, $11)", "$10, $11 and false)")),
        in_redis(("shared/group_order", "if first then return first end", "first = nil")),
    ),
    # An event that came in time is late when the run that goes on with it is.
    "an_event_in_time_is_late": lambda: (
        in_memory("came_to", _by_the_time_of_the_run, memory_steps),
        in_memory("came_to", _by_the_time_of_the_run, sqlite_waits),
        in_postgres(
            (
                "come_to",
                "$5::text",
                f"case when not exists ({_IS_OVER}) then $5::text end",
            )
        ),
        in_redis(("arrive", "(not until_ or tonumber(came[1]) <= until_)", "(not until_ or until_ > now)")),
    ),
    # An event counts that came behind the time.
    "a_late_event_counts": lambda: (
        in_memory("came_to", _whenever_it_came, memory_steps),
        in_memory("came_to", _whenever_it_came, sqlite_waits),
        mock.patch.object(postgres_steps.StepStatements, "arrive", _whenever_it_came_there(postgres_steps.StepStatements.arrive)),
        in_redis(("arrive", "(not until_ or tonumber(came[1]) <= until_)", "true")),
    ),
    # Of the waits whose time is over one reclaim wakes no more than one transaction or script does.
    "a_reclaim_wakes_some": lambda: (
        in_memory("overdue", _first_thousand, KeptEvents),
        mock.patch.object(SqliteStore, "_wake_more", _write_nothing),
        in_postgres(("wake_waiting", "select more,", "select more and not $3::boolean as more,")),
        in_redis(("reclaim", "more and 1 or 0}", "0}")),
    ),
    # A breaker that a person opened is closed by what was counted.
    "a_judge_closes_what_a_person_opened": lambda: (in_memory("judged", _of_persons_too, KeptBreaker),),
    # The next probe need not wait for its time.
    "every_claim_gets_a_probe": lambda: (
        in_memory("probed", _at_once_again, KeptBreaker),
        in_sql(("note_probe", "probe_at = :now + probe_every", "probe_at = probe_at + 0 * :now")),
        in_postgres(("put_breaker", "$4, $5,", "$4, 0 * $5::bigint,")),
        in_redis(("shared/rooms", "now + every, every, lease", "probe_at, every, lease")),
    ),
    # The steps of a job that was removed stay, for the next job with its id.
    "steps_outlive_their_job": lambda: (
        in_memory("_remove", _remembering_steps),
        in_sql(("remove_steps", "where job = ?", "where job = ? and false")),
        in_postgres(
            ("prune_few", "where s.job = any (array[g.id])", "where false and s.job = any (array[g.id])"),
            ("forget_steps", "where s.job", "where false and s.job"),
        ),
        in_redis(("shared/ending", ", P .. 'steps:' .. id, ", ", ")),
    ),
    # The end of a sleep is a time of the process that sleeps; its clock is ahead.
    "sleep_by_the_clients_clock": lambda: tuple(
        in_memory("to_us", _a_second_ahead, module) for module in (memory_steps, sqlite_steps, postgres_steps, redis_steps)
    ),
    # Output is kept whatever the lease number of its run.
    "output_without_fence": lambda: (
        in_memory("_write_output", _judged_by(_any_lease)),
        mock.patch.object(sqlite_output, "held", _with_sql_of(_ANY_LEASE, sqlite_running.held)),
        in_postgres(
            ("hold_writers", "select j.id, j.lease,", "select j.id, w.lease,"),
            ("hold_writers", "where j.lease = w.lease and j.running", "where j.running"),
        ),
        in_redis(("write_output", "or r.lease ~= lease then", "then")),
    ),
    # Output that is sent again, because an answer got lost, is kept twice.
    "output_is_kept_twice": lambda: (
        *(in_memory("appended", _all_of_it, module) for module in (memory_output, sqlite_output, postgres_output)),
        in_redis(("write_output", "for n = place - first + 1, count do", "for n = 1, count do")),
    ),
    # A process that was frozen goes on with an operation that another has taken over.
    "bulk_step_of_any_turn": lambda: (
        in_memory("current", _of_any("turn"), memory_bulk.Bulks),
        in_sql(("current_bulk", "turn = :turn", "true")),
        in_postgres(("current_bulk", "turn = $2", "$2::integer is not null")),
        in_redis(("step_bulk", "o[FIELD.turn] ~= tonumber(ARGV[3])", "false")),
    ),
    # A step whose answer was lost is written again.
    "bulk_step_twice": lambda: (
        in_memory("current", _of_any("behind"), memory_bulk.Bulks),
        in_sql(("current_bulk", "cursor is :behind", "true")),
        in_postgres(("current_bulk", "cursor is not distinct from $3", "coalesce($3::text, '') is not null")),
        in_redis(("step_bulk", "(o[FIELD.cursor] or '') ~= ARGV[4]", "false")),
    ),
    # A living operation is taken over.
    "bulk_taken_from_the_living": lambda: (
        in_memory("_interrupted", _always(True), memory_bulk.Bulks),
        in_sql(("take_bulks", "abs(:now - seen_at) >= :silence", "true")),
        in_postgres(("take_bulks", "abs((select now from clock) - b.seen_at) >= $4", "$4::bigint is not null")),
        in_redis(("take_bulks", "math.abs(now - o[FIELD.seen]) >= silence", "silence")),
    ),
    # A job goes into another queue, and its key stays behind.
    "key_of_a_changed_job_stays": lambda: (
        in_memory("move", _always(True), keys.Keys),
        in_memory("_move_key", _always(True), sqlite_edits),
        in_memory("_move_key", _left_behind, postgres_edits),
        in_redis(("shared/changing", "not move_key(id, l, q, meta_of(v, h).k)", "false")),
    ),
    # An id that belongs to another job is taken for a repeat.
    "ids_of_others_are_taken": lambda: (
        in_memory("is_same", _always(True), dedup),
        in_memory("is_same", _always(True), postgres_enqueue),
        in_redis(("shared/intake", "if strict then", "if false then")),
    ),
    # A request that was made before is made again.
    "requests_are_not_remembered": lambda: (
        in_memory("knows", _always(False), memory_requests.Requests),
        in_sql(("recall_request", "where caller = :caller", "where false and caller = :caller")),
        in_postgres(("claim_request", "where r.until <= hawser.now($1) and hawser.there(r.jobs, r.day) = '{}'", "where true")),
        in_redis(("enqueue", "local v = request_named(name)", "local v = nil")),
    ),
    # A debounced job is put off again and again, for longer than its first call said.
    "put_off_without_an_end": lambda: (
        in_memory("judge", _without_an_end, Debouncing),
        in_redis(("shared/debounce", "if until_ > 0 then due = min(due, until_) end", "")),
    ),
    # Jobs that are requeued over a time are all due at its beginning.
    "a_spread_is_not_kept": lambda: (
        *(in_memory("spread_delays", _all_at_once, store) for store in (memory_operations, sqlite_side, postgres_side)),
        in_redis(("shared/acting", "floor(requeuing.spread * requeuing.place / requeuing.count)", "0")),
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
        in_redis(("shared/audit", "  local number", "  if now then return end\n  local number")),
    ),
    # The groups of one queue count the dead jobs of all queues.
    "groups_of_any_queue": lambda: (
        in_memory("of", _of_any_queue, memory_groups.Groups),
        in_sql(("dead_groups", "where (:queue is null or queue = :queue)", "where (:queue is null or true)")),
        in_postgres(("dead_groups", "($1::text is null or l.queue = $1)", "($1::text is null or true)")),
        in_redis(("dead_groups", "(ARGV[2] == '' or q == ARGV[2])", "q")),
    ),
    # Jobs that are past their expiry are given out.
    "jobs_do_not_expire": lambda: (
        in_memory("past", lambda _: lambda *_: iter(()), memory_expiry.Expiries),
        in_sql(
            ("past_expiry", "expires_at <= :now", "expires_at <= 0"),
            ("any_past_expiry", "expires_at <= :now", "expires_at <= 0"),
            ("due", "expires_at > ?", "expires_at > 0 * ?"),
        ),
        in_postgres(
            ("expire", "j.expires_at <= c.now", "j.expires_at <= 0"),
            ("peek", "(j.expires_at > c.now) is not false", "true"),
            ("take", "(j.expires_at > c.now) is not false", "true"),
        ),
        in_redis(("shared/claim_sources", "call('ZCOUNT', P .. 'expiries', '-inf', num(now)) > 0", "false")),
    ),
    # A batch ends although its producer has not closed it.
    "an_open_batch_ends": lambda: (
        in_memory("state_of", _always_closed, memory_batches),
        in_memory("state_of", _always_closed, sqlite_batches),
        in_postgres(
            ("add_batch", "dead_job)\nvalues (", "dead_job, closed)\nvalues ("), ("add_batch", "$6, $7)", "$6, $7, true)")
        ),
        in_redis(("shared/batches", "local state = not b.closed and 'open' or", "local state =")),
    ),
    # What waits for a job or a batch to be done is released by its death, too.
    "any_end_will_do": lambda: (
        in_memory("is_over", _any_end_will_do, memory_upstream),
        in_memory("is_over", _any_end_will_do, sqlite_dependencies),
        in_postgres(
            ("hold_back", "$4::boolean[]", "array(select a or not d from unnest($4::boolean[], $11::boolean[]) as w(a, d))")
        ),
        in_redis(("shared/intake", "(on == 1 and state > RUNNING)", "state > RUNNING")),
    ),
    # A gather waits until its jobs have ended: a dead one wakes the parent, and so does a cancelled one.
    "a_gather_waits_for_any_end": lambda: (
        in_memory("_hold_run", _gathering_on_any_end),
        in_memory("depend", _depending_on_any_end, sqlite_waits),
        in_memory("hold_parent_arguments", _parents_on_any_end, following),
        in_redis(("shared/waiting", "cmsgpack.pack({0, #ids, false})", "cmsgpack.pack({0, #ids, true})")),
    ),
    # The end of a member is not counted in the write that ends it.
    "ends_of_members_are_not_counted": lambda: (
        in_memory("move", _never, memory_batches.KeptBatch),
        in_memory("count_member", _only_new_members, Tx),
        in_postgres(
            *((name, "and g.batch is not null", "and false") for name in (*FINISH, "leave")),
        ),
        in_redis(("shared/ending", "batches.count(batch, READY, r.state)", "batches.touch(batch)")),
    ),
    # A batch that has ended takes more.
    "ended_batches_take_more": lambda: (
        in_memory("against", _none, memory_batches.BatchTable),
        in_memory("against", _nothing_against, sqlite_batches),
        in_postgres(("join_batches", "$2::uuid", "coalesce($2::uuid, ($3::uuid[])[1])")),
        in_redis(("shared/batches", "if b.ended and id ~= own then return 'ended' end", "")),
    ),
    # A member may wait for a job that waits for its batch over another batch.
    "circles_over_others_are_written": lambda: (
        in_memory("_behind", _only_next_behind),
        in_sql(("waits_behind", "j.batch is not null", "false")),
        in_postgres(("check_circles", "$2::uuid[]", "array(select unnest($2::uuid[]) limit 0)")),
        in_redis(("shared/circles", "if own then take(own) end", "")),
    ),
    # A batch may end between the end of a member and the jobs that it adds.
    "a_member_ends_before_what_it_adds": lambda: (
        in_memory("state_of", _expecting_none, memory_batches),
        in_memory("follow_on", _folded_first, sqlite_settle),
        in_postgres(("join_batches", "$4::integer[]", "array_fill(0, array[cardinality($4::integer[])])")),
        in_redis(
            (
                "shared/dependencies",
                "local answers, fresh = sort_out(jobs, false)\n  local refused",
                "go_on()\n  local answers, fresh = sort_out(jobs, false)\n  local refused",
            )
        ),
    ),
    # A claimer gets the jobs that it leaves to others.
    "left_jobs_are_given_out": lambda: (
        in_memory("_without", _without_nothing),
        in_memory("LaneReader", _reads_what_is_left, sqlite_turns),
        in_postgres(
            ("peek", "j.id <> all ($9::uuid[])", "$9::uuid[] is not null"),
            ("take", "j.id <> all ($12::uuid[])", "$12::uuid[] is not null"),
        ),
        in_redis(("shared/claim_sources", "left_jobs[sub(ARGV[8], i, i + 15)] = true", "left_jobs[i] = true")),
    ),
    # The time for which no worker accepts a job begins anew with each worker that declines it.
    "each_decline_begins_anew": lambda: tuple(
        in_memory("merged", _from_the_last_note, store)
        for store in (memory_store, sqlite_declined, postgres_declined, redis_runs)
    ),
    # A key that was revoked is still live.
    "revoked_key_lives": lambda: (
        in_memory("record", _without("revoked_at"), api_keys._KeptKey),
        in_sql(("api_keys", "revoked_at, used_at", "null, used_at")),
        in_postgres(("api_keys", "revoked_at, used_at", "null, used_at")),
        in_redis(("control", "key[4] = now", "")),
    ),
    # A key is live after its time.
    "expired_key_lives": lambda: (
        in_memory("record", _without("expires_at"), api_keys._KeptKey),
        in_sql(("api_keys", "expires_at, revoked_at", "null, revoked_at")),
        in_postgres(("api_keys", "expires_at, revoked_at", "null, revoked_at")),
        in_redis(("control", "c ~= '' and now + tonumber(c) or 0", "0")),
    ),
    # Putting a key again brings it back.
    "key_put_again_revives": lambda: (
        in_memory("put", _put_over, api_keys.ApiKeys),
        in_sql(("put_api_key", "on conflict do nothing", "on conflict (id) do update set revoked_at = null")),
        in_postgres(("put_api_key", "do nothing", "do update set revoked_at = null")),
        in_redis(("control", "'HSETNX'", "'HSET'")),
    ),
    # The rollups of one queue are those of all.
    "rollups_of_all_queues": lambda: (
        in_memory("rollups", _of_all_queues),
        in_sql(("rollups", "queue = :queue", "true")),
        in_postgres(("rollups", "l.queue = $3", "true")),
        in_memory("rollups", _of_all_queues, redis_queries.Queries),
    ),
    # What a worker measured is counted as longer than it was.
    "measured_in_the_next_bucket": lambda: (
        in_memory("event_of", _in_the_next_bucket, memory_store),
        in_memory("event_of", _in_the_next_bucket, operations),
        in_memory("event_of", _in_the_next_bucket, charts),
        in_memory("event_of", _in_the_next_bucket, redis_queries),
    ),
}
"""Bugs of what the oracle does not play, or seldom: the contract has to notice."""

ADMISSION: dict[str, Callable[[], tuple[Patch, ...]]] = {
    # Any key may do anything.
    "roles_are_not_asked": lambda: (in_memory("admit", _admits_with_all_roles, identity.Gate),),
    # A key may enqueue any task.
    "tasks_are_not_asked": lambda: (in_memory("may_enqueue", _always(True), identity.Identity),),
    # The public part of a key is enough.
    "secret_is_not_compared": lambda: (in_memory("compare_digest", _always(True), hmac),),
    # What was once read of keys is believed for ever.
    "keys_are_read_once": lambda: (
        mock.patch.object(identity, "BELIEVED_FOR", float("inf")),
        mock.patch.object(identity, "KEYS_FRESH_FOR_S", float("inf")),
    ),
    # A run that one key has claimed is settled by another.
    "runs_belong_to_every_key": lambda: (in_memory("_mine", _all_mine, pull),),
    # Without a key everybody on this machine is taken for the user of the server.
    "sockets_of_others_are_ours": lambda: (in_memory("_is_own", _always_later(True), keyless.OwnUser),),
    # A process of our own user that listens is taken for the user, though it may be a proxy.
    "proxies_of_our_user_are_ours": lambda: (in_memory("speaks_for_itself", _always(True), keyless),),
    # No rate is held.
    "rates_are_not_held": lambda: (in_memory("take", _always(0.0), Bucket),),
}
"""Bugs of the door: the tests of the HTTP API have to notice."""

HANDLERS: dict[str, Callable[[], tuple[Patch, ...]]] = {
    # A handler that catches its suspension and returns is done.
    "suspension_is_eaten": lambda: (in_memory("_after", _as_it_ended, context),),
    # A second step under a name gets what the first came to.
    "same_name_twice": lambda: (in_memory("_begin", _forgetting_names, Ledger),),
    # A step that cannot be kept is an error like any other, and is tried again and again.
    "oversize_is_retried": lambda: (in_memory("refuse", _as_a_plain_error, Ledger),),
    # A job that goes on takes along what woke it: when its worker dies before the first statement, it waits for ever.
    "recovery_is_begun_once": lambda: (in_memory("claim", _without_its_event),),
    # The lease of a run is as long as it was at first, however long a step takes.
    "leases_are_not_extended": lambda: (in_memory("_extend", _without_extending, Extender),),
    # A step may have no name: every run takes it for that of any other.
    "empty_names_pass": lambda: (mock.patch.object(ledger, "text_fault", return_value=None),),
    # A parent keeps its slot until its children are done, which need one.
    "a_parent_waits_in_its_slot": lambda: (in_memory("_gather_async", _beside_its_children, WaitingLedger),),
    # What an older release recorded is taken for what this one wants.
    "kept_values_are_believed": lambda: (mock.patch.object(ledger, "decoded", lambda found, _: found.value),),
    # A step of another kind under the same name is taken for this one.
    "kept_kinds_are_believed": lambda: (in_memory("_passed", _whatever_it_is, WaitingLedger),),
    # A wait stands in a task of the event loop, which may be collected, and goes with its process.
    "a_wait_stands_in_a_task": lambda: (in_memory("_wait_for_async", _in_a_task, WaitingLedger),),
    # What was written is not there yet when the job is done.
    "output_behind_the_outcome": lambda: (mock.patch.object(settler, "write_output", _write_nothing),),
    # What a child process declined is ready again while a claim is under way that does not leave it out.
    "declined_beside_a_claim": lambda: (mock.patch.object(Executor, "claiming", return_value=nullcontext()),),
}
"""Bugs of the worker, most of them of what handlers are given: its tests have to notice."""

INSIDE: dict[str, Callable[[], tuple[Patch, ...]]] = {
    # The end of a member is counted in a commit of its own, before the one that settles it.
    "ends_are_counted_outside_of_the_commit": lambda: (
        in_memory("prepare_end", _counting_in_sqlite, SqliteStore),
        in_memory("run", _counting_no_end, sqlite_foreign.PreparedEnd),
        in_memory("prepare_end", _counting_in_postgres, PostgresStore),
        in_functions(("steps", "if g.batch is not null then", "if false then")),
    ),
    # An event of a user's transaction is there, and those who wait for it are not looked for.
    "emit_inside_tells_none": lambda: (
        in_memory("_wake", _never, sqlite_waits),
        in_functions(("events", "            insert into hawser.stirred (event) values (event_);\n", "")),
    ),
    # A step is recorded in its handler's transaction whatever the lease number of the run.
    "step_inside_without_fence": lambda: (
        mock.patch.object(sqlite_steps, "held", _with_sql_of(_ANY_LEASE, sqlite_running.held)),
        in_functions(("steps", "and j.lease = run_lease and j.running for no key update", "and j.running for no key update")),
    ),
}
"""Bugs of what is written in transactions of users: the tests of those have to notice."""

ALL = MUTANTS | BESIDE_THE_JOBS | ADMISSION | HANDLERS | INSIDE


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
