"""Claim, settle, extend, reclaim: what happens to runs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import chain, count
from typing import Any, Final

from hawser.clock import to_us
from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import Claimed
from hawser.outcome import worked
from hawser.store import (
    DONE_LATE,
    EXPIRED,
    Declined,
    LeaseRef,
    LeaseStatus,
    Leave,
    Reclaimed,
    SettleAnswer,
    Settled,
    Settlement,
    Share,
    Unaccepted,
)
from hawser.stores.declined import Kept, kept_of, merged
from hawser.stores.redis.codec import (
    STATES,
    claimed_of,
    lease_of,
    pack,
    packed_job,
    raw,
    steps_abandoned,
    steps_of,
    text,
)
from hawser.stores.redis.server import Server
from hawser.stores.redis.server_connection import Argument
from hawser.stores.redis.wake import Wake

_SETTLED: Final = {b"S": Settled.SETTLED, b"R": Settled.REPEATED, b"L": Settled.LOST}
_NOT_LIVE, _WRITTEN = 0, 1
_EXTENDED: Final = {"H": LeaseStatus.HELD, "C": LeaseStatus.CANCEL_ASKED, "L": LeaseStatus.LOST}

_PAST_EXPIRY, _AGAIN, _EMPTY, _MORE, _REST = b"expired", b"again", b"empty", b"more", b"rest"
EXPIRED_PER_SCRIPT: Final = 1_000
"""Jobs that one script cancels because they are past their expiry."""
EFFORT_PER_SCRIPT: Final = 1_000
"""Plain settlements that one script writes at most: some 5 ms of the server."""
EFFORT_OF_SPECIAL: Final = 3
"""What a settlement that is not plain, or a job that follows, costs the server in plain ones."""
CLAIM_ROUNDS: Final = 1_000
"""How often one claim goes on when it met only jobs that are too late, before it gives up: the store must answer at some time."""


class Runs:
    """How jobs are run."""

    def __init__(self, server: Server, wake: Wake, cancel_members: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._server = server
        self._hints = wake
        self._ring = wake.ring
        self._cancel_members = cancel_members
        self._turns = count()
        """Which queue gets the odd place changes from claim to claim; counted here, it costs no write."""

    async def claim(
        self, queues: Sequence[Share], limit: int, worker: str, lease_for: float, room: Mapping[str, int], leave: Leave
    ) -> list[Claimed]:
        shares: list[Argument] = []
        for share in queues:
            shares += [
                share.queue,
                "" if share.places is None else share.places,
                "" if share.most is None else share.most,
            ]
        given = (limit, worker, to_us(lease_for), next(self._turns) % 10, pack(dict(room)), *left(leave))
        passing, changes = "", self._hints.changes
        for _ in range(CLAIM_ROUNDS):
            said = await self._server.run("claim", *given, passing, *shares, connection="claim")
            if said == _PAST_EXPIRY:
                # Some are cancelled by each claim, so that what waits for them goes on. It passes over the others.
                await self.expire(EXPIRED_PER_SCRIPT)
                passing = "1"
            elif said == _EMPTY:
                self._hints.found_empty([share.queue for share in queues], changes)
                return []
            elif said != _AGAIN:
                return [claimed_of(*said[n : n + 3]) for n in range(0, len(said), 3)]
        return []

    async def expire(self, limit: int) -> int:
        return int(await self._server.run("expire", limit, EXPIRED))

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        """One script holds up all others, so it gets as much as is over soon; most calls are one."""
        answers: list[SettleAnswer] = []
        given: list[list[Argument]] = []
        effort = 0
        for settlement in settlements:
            plain = worked(settlement.outcome) and settlement.outcome.result is None
            steps = b"" if plain else pack(steps_of(settlement.outcome))
            then = settlement.then
            more = (1 if plain else EFFORT_OF_SPECIAL) + EFFORT_OF_SPECIAL * len(then)
            if effort + more > EFFORT_PER_SCRIPT and given:
                await self._settled(given, answers)
                given, effort = [], 0
            head = lease_of(settlement) + bytes((settlement.keep,)) + len(then).to_bytes(2, "big")
            given.append([head + steps, *(packed_job(job, settlement.id) for job in then)])
            effort += more
        if given:
            await self._settled(given, answers)
            self._ring()
        return answers

    async def _settled(self, given: Sequence[Sequence[Argument]], answers: list[SettleAnswer]) -> None:
        """The script leaves some to another when their jobs have more to them than their outcomes say."""
        while given:
            try:
                said = await self._server.run("settle", *chain.from_iterable(given), connection="settle")
            except StoreUnavailable as error:
                if not answers:
                    raise
                raise OutcomeUnknown(f"{error}; some of these settlements were written before: repeat all of them") from error
            telling = said[-1] == _MORE
            if telling:
                said.pop()
            if said[-1] == _REST:
                said.pop()
            answers += _answers(said)
            given = given[len(said) :]
            if telling:
                await self._go_on()

    async def extend(self, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:
        if not leases:
            return []
        arguments: list[Argument] = []
        for ref in leases:
            arguments += [lease_of(ref), ref.progress or b""]
        said = await self._server.run("extend", to_us(lease_for), *arguments, connection="keep")
        return [_EXTENDED[letter] for letter in said.decode()]

    async def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        said = await self._server.look("holders", *map(lease_of, leases))
        return [worker.decode() or None for worker in said]

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        return [LeaseRef(text(id), int(lease)) for id, lease in await self._server.look("asked", *workers, connection="keep")]

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        """The first look says whose runs have run out; the second takes them back as `abandoned` says for these workers."""
        missing, taken, cancelling, more, waking = await self._server.run("reclaim", limit)
        if missing:
            arguments: list[Argument] = []
            for name in missing:
                worker = name.decode()
                arguments += [name, pack([steps_abandoned(worker, renewed=True), steps_abandoned(worker, renewed=False)])]
            missing, taken, cancelling, more, waking = await self._server.run("reclaim", limit, *arguments)
        if cancelling:
            await self._cancel_members()
        if more:
            await self._go_on()
        if waking:
            await self._wake()
        if taken:
            self._ring()
        return [
            Reclaimed(
                text(id), task.decode(), queue.decode(), worker.decode(), attempt, STATES[state], bool(renewed), _seconds(after)
            )
            for id, task, queue, worker, attempt, state, renewed, after in taken
        ]

    async def go_on(self) -> None:
        """Look without a write whether upkeep has anything to do; if so, tell and wake."""
        *_, runs = await self._server.look("outlook")
        if int(runs) == 0:
            await self._go_on()
            await self._wake()

    async def _wake(self) -> None:
        """Wake those whose time is over, and whom an emitter has left, some in each script."""
        while await self._server.run("wake", ""):
            pass

    async def _go_on(self) -> None:
        """Tell those who wait for jobs that ended, some in each script: others get their turns between two of them."""
        while await self._server.run("go_on"):
            pass

    async def end_returned(self, lost: LeaseRef) -> bool:
        return bool(await self._server.run("end_returned", lease_of(lost), DONE_LATE))

    async def decline(self, declined: Sequence[Declined]) -> list[Unaccepted | None]:
        return [await self._decline(note) for note in declined]

    async def _decline(self, note: Declined) -> Unaccepted | None:
        """Written only while what is known is what the note was merged with; else merged anew."""
        known, now = b"", 0
        while True:
            kept = merged(_kept(known) if known else None, note, now)
            new = struct.pack(">QQ", kept.lease, kept.since) + kept.text().encode()
            said, [written, stands] = await self._server.run("decline", raw(note.id), known, new, connection="keep")
            known, now = stands, int(said)
            if written == _WRITTEN:
                return _kept(stands).answer(now)
            if written == _NOT_LIVE:
                return None

    async def due_in(self, queues: Sequence[str], leave: Leave) -> float | None:
        """Seconds until a job may be claimed, 0 if one may be now, None if no job waits."""
        due = int(await self._server.look("due", *left(leave), *queues))
        return None if due < 0 else due / 1_000_000


def _answers(said: Sequence[Any]) -> list[SettleAnswer]:
    """An answer of its own, or the place of one that is the same."""
    answers: list[SettleAnswer] = []
    for words in said:
        answers.append(answers[words] if isinstance(words, int) else _answer(*words))
    return answers


def _answer(letter: bytes, task: bytes, queue: bytes, state: int, after: bytes, attempt: int, most: int) -> SettleAnswer:
    return SettleAnswer(
        _SETTLED[letter],
        task.decode() or None,
        queue.decode() or None,
        None if state < 0 else STATES[state],
        _seconds(after),
        attempt,
        most,
    )


def _kept(packed: bytes) -> Kept:
    lease, since = struct.unpack_from(">QQ", packed)
    return kept_of(lease, since, packed[16:].decode())


def _seconds(after: bytes) -> float | None:
    return None if after == b"-1" else int(after) / 1_000_000


def left(leave: Leave) -> tuple[bytes, bytes]:
    """Tasks and jobs that are left to others."""
    return pack(sorted(leave.tasks)), b"".join(map(raw, leave.jobs))
