"""The faults of a store under test: which, when, and how often."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.store import (
    BreakerStore,
    BulkStore,
    DependencyStore,
    Durability,
    EndReader,
    EventStore,
    JobStore,
    KeepingStore,
    LimitStore,
    Operator,
    OutputStore,
    StepStore,
    Store,
)
from hawser.store.api_key import KeyStore
from hawser.store.rollup import Watcher
from hawser.store.schedules import ScheduleStore

T = TypeVar("T")

Sleep = Callable[[float], Awaitable[object]]


class Fault(StrEnum):
    """What may go wrong with a call."""

    DELAY = "delay"
    """The call is made, late."""
    REFUSE = "refuse"
    """`StoreUnavailable`: the call is not made."""
    LOSE_REQUEST = "lose_request"
    """`OutcomeUnknown`: the call is not made."""
    LOSE_REPLY = "lose_reply"
    """`OutcomeUnknown`: the call is made."""
    DUPLICATE = "duplicate"
    """The call is made twice; the last answer counts."""


LEFT_ALONE: Final = frozenset({"open", "close"})
"""Methods that chance leaves alone; a script does not."""


def _known(method: str) -> str:
    if method not in METHODS:
        raise ValueError(f"{method!r} is not a method of a store; use one of {', '.join(sorted(METHODS))}")
    return method


def _checked(chances: Mapping[Fault, float]) -> dict[Fault, float]:
    if not (all(chance >= 0 for chance in chances.values()) and sum(chances.values()) <= 1):
        raise ValueError(f"chances: {dict(chances)!r}; use numbers from 0 that add up to at most 1")
    return {Fault(fault): chance for fault, chance in chances.items()}


METHODS: Final = frozenset(
    name
    for protocol in (
        JobStore,
        ScheduleStore,
        Operator,
        LimitStore,
        BreakerStore,
        EndReader,
        DependencyStore,
        KeyStore,
        BulkStore,
        StepStore,
        OutputStore,
        EventStore,
        KeepingStore,
        Watcher,
    )
    for name, value in vars(protocol).items()
    if name[0] != "_" and callable(value)
)


class Faults:
    """Decides for each call of a store what goes wrong with it: by a script, else by chance from a seed."""

    def __init__(
        self,
        store: Store,
        *,
        seed: int = 0,
        chances: Mapping[Fault, float] | None = None,
        chances_of: Mapping[str, Mapping[Fault, float]] | None = None,
        delay: float = 0.01,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.durability: Durability = store.durability
        self.retention, self.done_most = store.retention, store.done_most
        self.calls: Counter[str] = Counter()
        self.done: Counter[tuple[str, Fault]] = Counter()
        self._store = store
        self._script: dict[str, deque[tuple[Fault | None, float]]] = {}
        self._dice = random.Random(seed)  # noqa: S311  # no secret: a run that can be repeated
        self._chances = _checked(chances or {})
        self._chances_of = {_known(method): _checked(own) for method, own in (chances_of or {}).items()}
        self._delay = delay
        self._sleep = sleep

    def next(self, method: str, fault: Fault | None, *, times: int = 1, delay: float | None = None) -> None:
        """Let the next calls of a method go wrong, after those that were told before; None lets them go right."""
        script = self._script.setdefault(_known(method), deque())
        script.extend([(fault, self._delay if delay is None else delay)] * times)

    @property
    def waiting(self) -> int:
        """How many scripted calls have not been made yet."""
        return sum(map(len, self._script.values()))

    def count(self, fault: Fault) -> int:
        """How often this went wrong, of any method."""
        return sum(times for (_, done), times in self.done.items() if done is fault)

    def _choose(self, method: str) -> tuple[Fault | None, float]:
        if script := self._script.get(method):
            return script.popleft()
        chances = self._chances_of.get(method, {} if method in LEFT_ALONE else self._chances)
        roll = self._dice.random() if chances else 0.0
        for fault, chance in chances.items():
            roll -= chance
            if roll < 0:
                return fault, self._delay
        return None, 0.0

    async def _do(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls[method] += 1
        fault, delay = self._choose(method)
        if fault is not None:
            self.done[method, fault] += 1
        match fault:
            case Fault.REFUSE:
                raise StoreUnavailable(f"{method}: refused by a test; nothing was written")
            case Fault.LOSE_REQUEST:
                raise OutcomeUnknown(f"{method}: the request got lost in a test; repeat it")
            case Fault.LOSE_REPLY:
                await call()
                raise OutcomeUnknown(f"{method}: the reply got lost in a test; repeat it")
            case Fault.DUPLICATE:
                await call()
            case Fault.DELAY:
                await self._sleep(delay)
        return await call()
