"""Batches through an app: `with app.batch(…) as batch`, and what an operator does with one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from hawser.batch import ADDED_AT_ONCE, Batch, BatchPage, BatchState, NewBatch, new_batch
from hawser.client import operator_fields
from hawser.client.connection import Connection, sync
from hawser.errors import BatchNotFound, ConfigError, FieldError, InvalidJob, OutcomeUnknown, StoreUnavailable, WrongState
from hawser.handle import Handle
from hawser.job import NewJob
from hawser.store import JOBS_PER_PAGE, Acted, Actor, Store
from hawser.value.upstream import HasId, upstream_id

T = TypeVar("T")


class OpenBatch:
    """What `app.batch` gives: a batch that is opened at the beginning of its block and closed at its end.

    `with app.batch("import-42", then=report.job(42)) as batch: batch.add(…)`, or `async with` and `await batch.aadd(…)`. An error
    inside leaves it open: it is listed as such, and can be closed or cancelled by `hawser batches`.
    """

    def __init__(self, connection: Connection, check: Callable[[Iterable[NewJob]], list[NewJob]], new: NewBatch) -> None:
        self._connection = connection
        self._check = check
        self._new = new

    @property
    def id(self) -> str:
        return self._new.id

    @property
    def name(self) -> str:
        return self._new.name

    def add(self, *jobs: NewJob) -> list[Handle[Any]]:
        """Add jobs, made by `task.job(…)`; they are in the store when this returns, written at most 1,000 at a time.

        Repeated with the same jobs after an error, it adds what is missing.
        """
        members = self._members(jobs)
        pieces = range(0, len(members), ADDED_AT_ONCE)
        return [handle for n in pieces for handle in self._connection.put(members[n : n + ADDED_AT_ONCE])]

    async def aadd(self, *jobs: NewJob) -> list[Handle[Any]]:
        """Add jobs, made by `task.job(…)`; they are in the store when this returns, written at most 1,000 at a time."""
        members, handles = self._members(jobs), []
        for n in range(0, len(members), ADDED_AT_ONCE):
            handles += await self._connection.aput(members[n : n + ADDED_AT_ONCE])
        return handles

    def _members(self, jobs: Iterable[NewJob]) -> list[NewJob]:
        return [job.of_batch(self.id) for job in self._check(jobs)]

    async def _open(self) -> None:
        store = await self._connection.ready()
        await self._surely(lambda: store.open_batch(self._new))

    async def _close(self) -> None:
        """Said twice, when the first answer was lost, it is closed all the same."""
        store = await self._connection.ready()
        if await self._surely(lambda: store.close_batch(self.id)) is Acted.NOT_FOUND:
            raise BatchNotFound(self.id)

    async def _surely(self, write: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call whose answer was lost: it may be made twice."""
        lost: Exception
        config = self._connection.config
        for turn in range(config.enqueue_tries):
            if turn and not self._connection.portal.inline:
                await asyncio.sleep(config.enqueue_retry_after * 2 ** (turn - 1))
            try:
                return await write()
            except OutcomeUnknown as error:
                lost = error
            except StoreUnavailable as error:
                if not turn:
                    raise
                lost = error
        raise OutcomeUnknown(
            f"no answer after {config.enqueue_tries} tries: {lost}; batch {self.id} may or may not be as it was: look at it with "
            f"app.get_batch({self.id!r})"
        ) from lost

    def __enter__(self) -> Self:
        self._connection.portal.call(self._open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._connection.portal.call(self._close())

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            await self._close()

    def __repr__(self) -> str:
        return f"<batch {self.name!r} {self.id}>"


class BatchCalls:
    """The part of an app that makes batches, and looks at them."""

    _connection: Connection

    def _checked(self, jobs: Iterable[NewJob]) -> list[NewJob]:
        raise NotImplementedError

    def batch(
        self,
        name: str,
        *,
        then: NewJob | None = None,
        on_success: NewJob | None = None,
        on_dead: NewJob | None = None,
        parent: HasId | str | None = None,
    ) -> OpenBatch:
        """Jobs that are counted together: `with app.batch("import-42", then=report.job(42)) as batch: batch.add(…)`.

        `then` runs when the block has ended and all its jobs have ended, however; `on_success` when all are done, also when that
        takes a replay; `on_dead` at the first death. Each is stored at once, and released exactly once. A batch with a
        parent counts as one job of that until it has ended. `name` is a label.
        """
        for word, job in (("then", then), ("on_success", on_success), ("on_dead", on_dead)):
            if isinstance(job, NewJob):
                try:
                    self._checked((job,))
                except InvalidJob as error:
                    named = (FieldError(f"{word}.{each.field.removeprefix('jobs[0].')}", each.message) for each in error.errors)
                    raise type(error)(*named) from None
        outer = None if parent is None else upstream_id(parent)
        new = new_batch(name=name, then=then, on_success=on_success, on_dead=on_dead, parent=outer)
        return OpenBatch(self._connection, self._checked, new)

    async def aget_batch(self, id: str) -> Batch:
        """The batch with its counts, which are exact; `BatchNotFound` when the id is unknown."""
        return await get_batch(await self._connection.ready(), id)

    async def afind_batches(
        self, *, state: BatchState | str | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE
    ) -> BatchPage:
        """Batches, newest first, all or those in a state: open, running, done, dead, cancelled; go on with `after=page.next`."""
        wanted, limit = checked_state(state), operator_fields.checked_limit(limit)
        return await (await self._connection.ready()).batches(wanted, after, limit)

    async def aclose_batch(self, id: str, *, reason: str | None = None, by: str = "app") -> None:
        """Close a batch that its producer has left open; one that is closed already raises `WrongState`."""
        await close_batch(await self._connection.ready(), id, Actor(by, reason))

    async def acancel_batch(self, id: str, *, reason: str | None = None, by: str = "app") -> None:
        """Close a batch, cancel its jobs that wait, and ask the workers of those that run to stop; so in batches inside it.

        `then` runs when all have ended. One that has ended raises `WrongState`.
        """
        await cancel_batch(await self._connection.ready(), id, Actor(by, reason))

    get_batch = sync(aget_batch)
    find_batches = sync(afind_batches)
    close_batch = sync(aclose_batch)
    cancel_batch = sync(acancel_batch)


async def get_batch(store: Store, id: str) -> Batch:
    """The batch, or `BatchNotFound`."""
    batch = await store.batch(id)
    if batch is None:
        raise BatchNotFound(id)
    return batch


async def close_batch(store: Store, id: str, actor: Actor) -> None:
    said = await store.close_batch(id, actor)
    if said is Acted.NOT_FOUND:
        raise BatchNotFound(id)
    if said is Acted.WRONG_STATE:
        raise WrongState(f"cannot close batch {id}: it is closed already")


async def cancel_batch(store: Store, id: str, actor: Actor) -> None:
    said = await store.cancel_batch(id, actor)
    if said is Acted.NOT_FOUND:
        raise BatchNotFound(id)
    if said is Acted.WRONG_STATE:
        batch = await get_batch(store, id)
        raise WrongState(f"cannot cancel batch {id}: it has ended, and is {batch.state}")


def checked_state(state: BatchState | str | None) -> BatchState | None:
    try:
        return None if state is None else BatchState(state)
    except ValueError:
        raise ConfigError(f"state: {state!r} is not one of them; known are {', '.join(BatchState)}") from None
