"""Jobs as the scripts take and give them: ids as 16 bytes, times in microseconds, numbers big-endian."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hawser.clock import from_datetime, to_us
from hawser.job import FOREVER, UNTIL_START, Claimed, Job, NewJob, State
from hawser.outcome import Held, Outcome, Step, abandoned, follow
from hawser.store import LeaseRef
from hawser.stores.record import Record, job_of, shown
from hawser.stores.waits import waited_for
from hawser.value.fingerprint import fingerprint
from hawser.value.ids import is_id

HEAD: Final = struct.Struct(">QQQQIIIBB")
"""Enqueued, due, order, timeout, attempts, lane, length of the meta, kind, flags: what stands in front of meta and body."""

RECORD: Final = struct.Struct(">BBBBQIIIQQQQQQQI")
"""State, kind, cancel asked, has extras, lease, attempt, returned, crashes, settled, lease until, leased for, started, claim,
due, finished, lane; then the worker of a run that is over."""

GIVEN_NUMBERS: Final = struct.Struct(">QIIQ")
"""Lease, attempt, crashes, due: what a claim says of a job."""

_ARRIVING: Final = struct.Struct(">BBQQIBBI")
_KEYED, _INDEXED, _AT_TIME, _SCHEDULED, _WAITS, _EXPIRES = 1, 2, 4, 8, 16, 64
_WAITS_ON: Final = {"done": 0, "ended": 32, "died": 128}
_MOST_LEASE: Final = 2**53 - 1
"""Lua counts in doubles. No lease number is so high: one above it belongs to no run, like one below zero."""

STATES: Final = (State.READY, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED)

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode


class Meta(msgspec.Struct, omit_defaults=True):
    """What only some jobs have; the names are short because each such job keeps them."""

    k: str | None = None
    """Its key."""
    l: int = 0  # noqa: E741
    """Microseconds for which the key is held at least; -1: as long as the job is kept; -2: until it has started."""
    p: str | None = None
    """Its parent."""
    s: str | None = None
    """Its schedule."""
    i: str | None = None
    """The tick of the schedule."""
    t: tuple[str, ...] = ()
    c: bool = False
    """Run again only after an explicit confirmation."""
    g: str | None = None
    """Its group."""
    e: int = 0
    """Microseconds from its enqueue after which it is not started."""
    a: tuple[str, ...] = ()
    """The arguments that it is found by."""
    b: str | None = None
    """Its batch."""
    d: int = 0
    """Microseconds after the first call at which a debounced job is due at the latest; -1: it has no such time."""


_KEY_HOLDS: Final = {FOREVER: -1, UNTIL_START: -2}
"""What stands for holds that are no time."""

_meta = msgspec.msgpack.Decoder(Meta).decode
_NO_META: Final = Meta()


def raw(id: str) -> bytes:
    """An id as 16 bytes. A text that is not an id becomes an id that no job has."""
    return bytes.fromhex(id.replace("-", "")) if is_id(id) else bytes(16)


def text(id: bytes) -> str:
    text = id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def lease_of(ref: LeaseRef | Any) -> bytes:
    """Id and lease of a run."""
    lease = ref.lease if 0 <= ref.lease <= _MOST_LEASE else _MOST_LEASE
    return raw(ref.id) + lease.to_bytes(8, "big")


def _put_off(job: NewJob) -> int:
    if job.debounce is None:
        return 0
    return -1 if job.at_most is None else to_us(job.at_most)


def packed_job(job: NewJob, parent_id: str | None = None) -> bytes:
    """A job on its way in."""
    flags = 0
    meta = b""
    parent_id = parent_id or job.parent_id
    found_by = parent_id or job.schedule or job.group or job.index or job.batch
    expires = to_us(job.expires or 0)
    if found_by or job.key is not None or job.tags or job.confirm_replay or expires:
        ttl = _KEY_HOLDS.get(job.key_ttl) or to_us(job.key_ttl)
        tick = None if job.tick is None else str(from_datetime(job.tick))
        labels = tuple(job.tags), job.confirm_replay, job.group
        meta = pack(Meta(job.key, ttl, parent_id, job.schedule, tick, *labels, expires, job.index, job.batch, _put_off(job)))
        flags = (_KEYED if job.key is not None else 0) | (_INDEXED if found_by else 0)
        flags |= _EXPIRES if expires else 0
    when = to_us(job.delay)
    if job.run_at is not None:
        when = from_datetime(job.run_at)
        flags |= _AT_TIME
    if job.schedule is not None:
        flags |= _SCHEDULED
    waits = b""
    if job.waits_for:
        flags |= _WAITS | _WAITS_ON[job.waits_on]
        ids = b"".join(map(raw, job.waits_for))
        waits = len(ids).to_bytes(4, "big") + ids
    queue, task = job.queue.encode(), job.task.encode()
    head = _ARRIVING.pack(
        *(flags, job.priority, to_us(job.timeout), when, job.max_attempts or 0, len(queue), len(task), len(meta))
    )
    return b"".join((raw(job.id), head, queue, task, waits, meta, job.body))


def claimed_of(given: bytes, stored: bytes, lane: bytes) -> Claimed:
    """A job as a claim gives it."""
    enqueued, _, _, timeout, most, _, length, _, _ = HEAD.unpack_from(stored)
    lease, attempt, crashes, due = GIVEN_NUMBERS.unpack_from(given, 16)
    queue, task, priority = lane.decode().split("|")
    meta = _meta(stored[HEAD.size : HEAD.size + length]) if length else _NO_META
    return Claimed(
        text(given[:16]),
        task,
        queue,
        stored[HEAD.size + length :],
        int(priority),
        attempt,
        most,
        timeout / 1_000_000,
        lease,
        due,
        enqueued,
        key=meta.k,
        tags=meta.t,
        parent_id=meta.p,
        schedule=meta.s,
        tick_us=None if meta.i is None else int(meta.i),
        group=meta.g,
        batch=meta.b,
        crashes=crashes,
    )


def shown_job(view: Sequence[Any]) -> Job:
    """A whole job, from what `views.lua` gives."""
    id, stored, record, worker, flat, history, lane, due, held = view
    enqueued, _, _, timeout, most, _, length, _, _ = HEAD.unpack_from(stored)
    meta = _meta(stored[HEAD.size : HEAD.size + length]) if length else _NO_META
    queue, task, priority = lane.decode().split("|")
    state, asked, lease, attempt, returned, crashes, until, started, finished = 0, 0, 0, 0, 0, 0, 0, 0, 0
    if record:
        fields = RECORD.unpack_from(record)
        state, _, asked, _, lease, attempt, returned, crashes, _, until, _, started, _, _, finished, _ = fields
    extras = dict(zip(flat[::2], flat[1::2], strict=True))
    reason = extras.get(b"reason")
    row = {
        "id": text(id),
        "task": task,
        "queue": queue,
        "body": stored[HEAD.size + length :],
        "priority": int(priority),
        "state": STATES[state],
        "attempt": attempt,
        "max_attempts": most,
        "timeout": timeout / 1_000_000,
        "lease": lease,
        "run_at": int(due),
        "enqueued_at": enqueued,
        "started_at": started or None,
        "finished_at": finished or None,
        "lease_until": until or None,
        "worker": worker.decode(),
        "key": meta.k,
        "key_ttl": {hold: ttl for ttl, hold in _KEY_HOLDS.items()}.get(meta.l, meta.l / 1_000_000),
        "tags": None,
        "parent_id": meta.p,
        "confirm_replay": meta.c,
        "schedule": meta.s,
        "tick": None if meta.i is None else int(meta.i),
        "group_name": meta.g,
        "expires_at": enqueued + meta.e if meta.e else None,
        "indexed": None,
        "batch": meta.b,
        "cancel_asked": asked,
        "returned": returned,
        "crashes": crashes,
        "reason": None if reason is None else reason.decode(),
        "result": extras.get(b"result"),
        "progress": extras.get(b"progress"),
        "held": held or None,
    }
    job = job_of(row, [shown(record_of(each)) for each in history])
    return msgspec.structs.replace(job, tags=meta.t, index=meta.a) if meta.t or meta.a else job


def record_of(packed: bytes) -> Record:
    """The record of an attempt that is over."""
    number, lease, worker, started, ended, outcome, error, traceback = unpack(packed)
    return (number, lease, worker, started, ended, outcome, _or_none(error), _or_none(traceback))


def _or_none(value: Any) -> Any:
    """Lua has no null in a list: false stands for it."""
    return None if value is False else value


def packed_step(step: Step) -> list[Any]:
    """Where an outcome takes a job, as `ending.lua` takes it."""
    failure = step.failure
    return [
        STATES.index(step.state),
        step.word,
        to_us(step.after),
        step.burns,
        step.recorded,
        step.crashed,
        step.counts_as or False,
        False if failure is None else failure.error,
        False if failure is None or failure.traceback is None else failure.traceback,
        False if step.reason is None else step.reason,
        False if step.result is None else step.result.decode(),
        fingerprint((failure.error if failure is not None else None) or step.reason) if step.state is State.DEAD else False,
        False if step.hold is None else _packed_hold(step.hold),
    ]


def _packed_hold(hold: Held) -> list[Any]:
    lasts = False if hold.timeout is None else to_us(hold.timeout)
    return [hold.name, hold.event or False, [raw(id).hex() for id in hold.jobs], lasts, waited_for(hold).decode()]


def steps_of(outcome: Outcome) -> list[list[Any]]:
    """The ways that an outcome may go: with attempts left, with none left, and when a cancel was asked.

    Only the store knows which of them holds. The rule itself stands in `follow`.
    """
    return [
        packed_step(follow(outcome, attempt=1, max_attempts=2, cancel_asked=False)),
        packed_step(follow(outcome, attempt=1, max_attempts=1, cancel_asked=False)),
        packed_step(follow(outcome, attempt=1, max_attempts=2, cancel_asked=True)),
    ]


def steps_abandoned(worker: str, *, renewed: bool) -> list[list[Any]]:
    """The same for a run whose lease ran out."""
    return [
        packed_step(abandoned(worker, renewed=renewed, attempt=1, max_attempts=2, cancel_asked=False)),
        packed_step(abandoned(worker, renewed=renewed, attempt=1, max_attempts=1, cancel_asked=False)),
        packed_step(abandoned(worker, renewed=renewed, attempt=1, max_attempts=2, cancel_asked=True)),
    ]
