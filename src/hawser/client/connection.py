"""An app's store: opened at first use, reached from both worlds, written to until the answer is known."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from msgspec.structs import replace

from hawser.client.new_event import NewEvent
from hawser.client.portal import Portal, after_fork
from hawser.client.transaction import EventsInside, Inside, PreparedEmit, PreparedEnqueue
from hawser.config import Config
from hawser.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from hawser.handle import Handle, ResultSource
from hawser.job import NewJob
from hawser.store import Enqueued, RequestKey, Store

P = ParamSpec("P")
T = TypeVar("T")


WaitingEnqueue = Callable[[Sequence[NewJob]], list[Enqueued]]
"""An enqueue for which the caller's own thread waits."""


class Connected(Protocol):
    """What talks to a store through a connection."""

    _connection: Connection


S = TypeVar("S", bound=Connected)


def sync(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """The synchronous twin of a method: the same, through the portal."""

    @functools.wraps(method)
    def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            call = method(self, *args, **kwargs)
        except TypeError as error:
            raise _in_the_words_of(f"{type(self).__name__}.{twin.__name__}", method, error) from None
        return self._connection.portal.call(call)

    twin.__name__ = method.__name__.removeprefix("a")
    twin.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.{twin.__name__}"
    return twin


def _in_the_words_of(called: str, method: Callable[..., Any], error: TypeError) -> TypeError:
    """Python's error for wrong arguments, with the name of the called method and its keyword arguments."""
    parameters = inspect.signature(method).parameters.values()
    by_name = ", ".join(f"{parameter.name}=" for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)
    hint = f"; give by name: {by_name}" if by_name and "positional" in str(error) else ""
    return TypeError(str(error).replace(f"{method.__qualname__}()", f"{called}()") + hint)


class Connection:
    """Holds the store and its portal. `make` builds a store; it is called again in a forked child."""

    def __init__(self, make: Callable[[], Store], config: Config) -> None:
        self.config = config
        self.max_payload = config.max_payload
        self.results: ResultSource | None = None
        """Where its handles ask how their jobs ended."""
        self.store = make()
        self.portal = Portal(self.store)
        self.around: Callable[[Sequence[NewJob]], AbstractContextManager[Sequence[NewJob]]] | None = None
        """What is done around every enqueue, such as a span; it may mark the jobs."""
        self._make = make
        self._opened = False
        self._left_behind: list[Store] = []
        self._renewed = False
        self._renew_in_children()

    def use(self, make: Callable[[], Store]) -> None:
        """Take another store. The first must not have been opened."""
        self._make = make
        self.store = make()
        self.portal = Portal(self.store)
        self._renew_in_children()

    def lend_store(self, store: Store, portal: Portal) -> Callable[[], None]:
        """Work with another store, also while its own is busy, until what is returned is called."""
        own = self.store, self.portal, self._opened
        self.store, self.portal, self._opened = store, portal, False

        def give_back() -> None:
            self.store, self.portal, self._opened = own

        return give_back

    def _renew_in_children(self) -> None:
        if not self.portal.inline and not self._renewed:
            self._renewed = True
            after_fork(self._forked)

    async def ready(self) -> Store:
        """The store, open. Two that come first at the same time both open it, which the seam allows."""
        if not self._opened:
            await self.store.open()
            self._opened = True
        return self.store

    def put(self, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        """`aput` for synchronous callers. A store that lets their own thread wait is asked without the loop between."""
        waiting = cast("WaitingEnqueue | None", getattr(self.store, "enqueue_waiting", None))
        if waiting is None or not self._opened or not jobs:
            return self.portal.call(self.aput(jobs))
        if self.around is None:
            return self._put_waiting(waiting, jobs)
        with self.around(jobs) as marked:
            return self._put_waiting(waiting, marked)

    def _put_waiting(self, waiting: WaitingEnqueue, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        try:
            return self._handles(jobs, waiting(jobs))
        except OutcomeUnknown as error:
            return self.portal.call(self._put_again(self.store, jobs, None, error))

    async def aput(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Handle[Any]]:
        """Add jobs that were checked, all or none. A lost answer is asked for again, with the same ids."""
        if not jobs:
            return []
        if self.around is None:
            return await self._put(jobs, request)
        with self.around(jobs) as marked:
            return await self._put(marked, request)

    async def _put(self, jobs: Sequence[NewJob], request: RequestKey | None) -> list[Handle[Any]]:
        store = self.store if self._opened else await self.ready()
        try:
            return self._handles(jobs, await _enqueue(store, jobs, request))
        except OutcomeUnknown as error:
            return await self._put_again(store, jobs, request, error)

    async def _put_again(
        self, store: Store, jobs: Sequence[NewJob], request: RequestKey | None, error: OutcomeUnknown
    ) -> list[Handle[Any]]:
        lost: Exception = error
        for turn in range(self.config.enqueue_tries - 1):
            if not self.portal.inline:
                await asyncio.sleep(self.config.enqueue_retry_after * 2**turn)
            try:
                answers = await _enqueue(store, jobs, request)
            except (OutcomeUnknown, StoreUnavailable) as again:
                # "Nothing was written" is true of this try only; the outcome of the first is still unknown.
                lost = again
            else:
                # An id of ours in the store can only be from an earlier try: it is this call that made the job.
                mine = [
                    replace(answer, created=answer.created or answer.id == job.id)
                    for answer, job in zip(answers, jobs, strict=True)
                ]
                return self._handles(jobs, mine)
        ids = ", ".join(job.id for job in jobs[:10]) + (f" and {len(jobs) - 10} more" if len(jobs) > 10 else "")
        raise OutcomeUnknown(
            f"no answer to enqueue after {self.config.enqueue_tries} tries: {lost}; the jobs may or may not be there: "
            f"look for {ids}, or enqueue the same NewJob objects again, which makes no second job"
        ) from lost

    def _handles(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> list[Handle[Any]]:
        results = self.results
        return [
            Handle(answer.id, answer.created, job.task, results, answer.replaced)
            for job, answer in zip(jobs, answers, strict=True)
        ]

    def inside(self, transaction: object) -> Inside:
        """Where jobs go that belong to a transaction of the caller's own."""
        return Inside(self.prepare_enqueue, self.portal, self.max_payload, transaction, self._handles)

    def events_inside(self, transaction: object) -> EventsInside:
        """Where events go that belong to a transaction of the caller's own."""
        return EventsInside(self.prepare_emit, self.portal, transaction)

    async def prepare_emit(self, event: NewEvent) -> PreparedEmit:
        """The event, ready to be written by a connection of the caller's own."""
        store = await self.ready()
        if not hasattr(store, "prepare_emit"):
            raise ConfigError(
                "inside: only sqlite:/// and postgresql:// stores can emit in a transaction of yours; this app has another "
                "store, so emit after your commit instead"
            )
        return cast("PreparedEmit", await store.prepare_emit(*event))

    async def prepare_enqueue(self, jobs: Sequence[NewJob]) -> PreparedEnqueue:
        """The jobs, ready to be written by a connection of the caller's own."""
        store = await self.ready()
        if not hasattr(store, "prepare_enqueue"):
            raise ConfigError(
                "inside: only sqlite:/// and postgresql:// stores can enqueue in a transaction of yours; this app has another "
                "store, so enqueue after your commit instead"
            )
        return cast("PreparedEnqueue", await store.prepare_enqueue(jobs))

    async def aclose(self) -> None:
        """Close the store and end the portal's thread; a later call opens both again."""
        await self._close_store()
        await asyncio.to_thread(self.portal.close)

    def close(self) -> None:
        self.portal.call(self._close_store())
        self.portal.close()

    async def _close_store(self) -> None:
        self._opened = False
        await self.store.close()

    def _forked(self) -> None:
        """A child needs its own threads and files; the parent's are kept, so that nothing here closes them."""
        self._left_behind.append(self.store)
        self.store = self._make()
        self._opened = False


async def _enqueue(store: Store, jobs: Sequence[NewJob], request: RequestKey | None) -> list[Enqueued]:
    return await (store.enqueue(jobs) if request is None else store.enqueue(jobs, request))
