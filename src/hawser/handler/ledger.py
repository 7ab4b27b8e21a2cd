"""The steps of one run, for its handler: what an earlier run of the job has achieved is not done again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from hawser.clock import MAX_DELAY
from hawser.cycle import wait_after
from hawser.decision import BadStep
from hawser.errors import InvalidJob, LeaseLost, OutcomeUnknown, StepMismatch, StoreUnavailable
from hawser.handler.open_time import OpenTime
from hawser.handler.own_transaction import opened, opened_async
from hawser.job import Claimed
from hawser.outcome import Held, Suspended
from hawser.store import MAX_STEP_NAME, MAX_STEP_VALUE, MAX_STEPS, NewStep, RecordedStep, Store
from hawser.value.json_value import to_json, unchanged_json
from hawser.value.name import text_fault

T = TypeVar("T")


class StoreCaller(Protocol):
    """Runs the store's coroutines for a synchronous handler."""

    @property
    def inline(self) -> bool:
        """Whether they may never wait."""

    def call(self, coro: Coroutine[Any, Any, T]) -> T: ...


class ResultReader(Protocol):
    """What the app knows of the results of its tasks."""

    def check_kept(self, task: str) -> None:
        """Raises `ConfigError` when nothing is kept of the task's done jobs."""

    def decoded(self, task: str, result: bytes) -> Any:
        """A result, as the type that the task is said to return."""


class StoreAccess(Protocol):
    """The store of the app that the job belongs to, and how a thread reaches it."""

    @property
    def portal(self) -> StoreCaller: ...

    @property
    def results(self) -> ResultReader | None: ...

    async def ready(self) -> Store: ...


class PreparedStep(Protocol):
    """A record that a store has made ready to be written by the handler's own connection. `LeaseLost` when it may not be."""

    def begin(self, con: Any) -> float | None: ...
    async def abegin(self, con: Any) -> None: ...
    def run(self, con: Any) -> None: ...
    async def arun(self, con: Any) -> None: ...


class RunLease(Protocol):
    """What a ledger asks the run."""

    @property
    def lost(self) -> bool:
        """Whether the run has no right to write any more, as far as its worker knows."""

    @property
    def draining(self) -> bool:
        """Whether the worker is to end: the run goes on elsewhere, from its last step."""


class StepRules(NamedTuple):
    """How the steps of a task are made."""

    access: StoreAccess | None
    """None for a task that was called like a function: its steps are made and not kept."""
    is_async: bool
    kept: bool
    """Whether the task's done jobs are kept."""
    ordered: bool = False
    """Whether the task declares that the jobs of a group start strictly in their order."""


class Ledger:
    """What is recorded of a job, loaded at the first step of a run that is not the job's first, and added to step by step."""

    def __init__(self, job: Claimed, run: RunLease, rules: StepRules) -> None:
        self._job = job
        self._run = run
        self._rules = rules
        self._known: dict[str, RecordedStep] | None = None
        self._used: set[str] = set()
        self.recorded = False
        """Whether this run has recorded a step."""
        self.fault: BadStep | None = None
        """Why the run fails for good, also when its handler catches the error."""
        self.suspended: Suspended | None = None
        """What the handler was suspended with: it is over, also when it goes on."""
        self._waited: set[str] = set()
        """Names under which an earlier run was held."""

    # What a handler calls. A coroutine in an async handler, else the value.

    def step(self, name: str, call: Callable[..., Any], into: Any, version: int | None, inside: Any = None) -> Any:
        if self._rules.is_async:
            return self._step_async(name, call, into, version, inside)
        full = self._begin(name, version)
        found = self._wait(self._find(full))
        if found is None and inside is not None:
            found = self._step_inside(full, call, into, inside)
        elif found is None:
            found = self._wait(self._record(full, self._encoded(full, call(), into)))
        return self._read(found, into)

    def _step_inside(self, name: str, call: Callable[..., Any], into: Any, target: Any) -> RecordedStep:
        """The rows of the call and its record in one commit."""
        first = self._wait(self._prepare(name, b""))  # a store that cannot do this says so before anything is written
        with OpenTime(self._job, f"step {name!r}") as open_time, opened(target) as con:
            if first is not None:
                open_time.begun(first.begin(con))
            value = self._encoded(name, call(con), into)
            prepared = self._wait(self._prepare(name, value))
            if prepared is not None:
                prepared.run(con)
        return self._made(name, value)

    async def _step_inside_async(self, name: str, call: Callable[..., Any], into: Any, target: Any) -> RecordedStep:
        first = await self._prepare(name, b"")
        async with opened_async(target) as con:
            if first is not None:
                await first.abegin(con)
            value = call(con)
            if isawaitable(value):
                value = await value
            value = self._encoded(name, value, into)
            prepared = await self._prepare(name, value)
            if prepared is not None:
                await prepared.arun(con)
        return self._made(name, value)

    async def _prepare(self, name: str, value: bytes) -> PreparedStep | None:
        """The record, ready to be written by the handler's own connection; None when nothing is kept."""
        if self._rules.access is None:
            return None
        store = await self._rules.access.ready()
        make = getattr(store, "prepare_step", None)
        if make is None:
            raise self.refuse(
                f"step {name!r}: inside: only sqlite:/// and postgresql:// stores can record a step in a transaction of yours; "
                "leave inside= out, and give the other side ctx.key(name)"
            )
        self.recorded = True
        ready: PreparedStep = await make(NewStep(id=self._job.id, lease=self._job.lease, name=name, value=value))
        return ready

    def _made(self, name: str, value: bytes) -> RecordedStep:
        assert self._known is not None
        found = _unkept(NewStep(id=self._job.id, lease=self._job.lease, name=name, value=value))
        self._known[name] = found
        return found

    async def _step_async(
        self, name: str, call: Callable[..., Awaitable[Any] | Any], into: Any, version: int | None, inside: Any
    ) -> Any:
        full = self._begin(name, version)
        found = await self._find(full)
        if found is None and inside is not None:
            found = await self._step_inside_async(full, call, into, inside)
        elif found is None:
            value = call()
            if isawaitable(value):
                value = await value
            found = await self._record(full, self._encoded(full, value, into))
        return self._read(found, into)

    def sleep(self, name: str, seconds: object) -> Any:
        if self._rules.is_async:
            return self._sleep_async(name, seconds)
        full, lasts = self._begin(name, None, "sleep"), self._checked(name, seconds)
        found = self._wait(self._find(full))
        return self._go_on(found or self._wait(self._record(full, b"null", "sleep", lasts)))

    async def _sleep_async(self, name: str, seconds: object) -> None:
        full, lasts = self._begin(name, None, "sleep"), self._checked(name, seconds)
        found = await self._find(full)
        self._go_on(found or await self._record(full, b"null", "sleep", lasts))

    def _checked(self, name: str, seconds: object) -> float:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_DELAY:
            raise self.refuse(f"sleep {name!r}: {seconds!r} is not a time from 0 s to 10 years")
        return float(seconds)

    def _go_on(self, found: RecordedStep) -> None:
        """Past a sleep that is over; else the run ends here, and the next one comes when it is."""
        if found.kind != "sleep":
            raise self._other_kind(found, "sleep")
        if found.left > 0:
            raise self.suspend(f"sleeps: {found.name}, since {found.at:%Y-%m-%d %H:%M:%S} UTC", found.left)

    def suspend(self, reason: str, after: float | None = None, hold: Held | None = None) -> Suspended:
        """The run ends here, and the job goes on later."""
        self.suspended = Suspended(reason, after, hold)
        return self.suspended

    # Its parts.

    def _begin(self, name: object, version: object, kind: str = "step") -> str:
        """The name under which the step is kept. Each is used once in a run."""
        if self.fault is not None:
            raise self.fault
        if self.suspended is not None:
            raise self.suspended
        if not self._rules.kept:
            raise self.refuse(
                f"{kind} {name!r}: steps are kept with their job, and task {self._job.task!r} keeps no done jobs; "
                "give the task a retention above 0"
            )
        full = name
        if version is not None:
            if not isinstance(version, int) or isinstance(version, bool) or version < 1:
                raise self.refuse(f"step {name!r}: version: {version!r} is not a whole number from 1")
            full = f"{name}@{version}"
        if fault := text_fault(full, MAX_STEP_NAME):
            raise self.refuse(f"{kind} {str(name)[:MAX_STEP_NAME]!r}: the name is {fault}")
        assert isinstance(full, str)
        if full in self._used:
            raise self.refuse(
                f"{kind} {full!r}: the name was used before in this run; give each step its own name, in a loop with its number"
            )
        self._used.add(full)
        return full

    def refuse(self, text: str) -> BadStep:
        """The run fails for good, also when its handler catches this."""
        self.fault = BadStep(text)
        return self.fault

    def _encoded(self, name: str, value: Any, into: Any) -> bytes:
        try:
            return (unchanged_json if into is None else to_json)("value", value, MAX_STEP_VALUE)
        except InvalidJob as error:
            hint = "" if into is not None else "; return plain JSON, or say into=TYPE and every run gets that type"
            raise self.refuse(f"step {name!r}: what it came to cannot be recorded: {error}{hint}") from error

    def _read(self, found: RecordedStep, into: Any) -> Any:
        if found.kind != "step":
            raise self._other_kind(found, "step")
        return decoded(found, into)

    def _wait(self, coro: Coroutine[Any, Any, T]) -> T:
        """For a synchronous handler."""
        if self._rules.access is None:
            return _driven(coro)
        return self._rules.access.portal.call(coro)

    async def _find(self, name: str) -> RecordedStep | None:
        """What an earlier run has recorded under the name; None when the step is to be made now."""
        if self._known is None:
            self._known = {}
            # A first run has nothing to load, so it asks nothing.
            if self._rules.access is not None and self._job.lease > 1:
                steps = await self._surely(lambda store: store.steps(self._job.id))
                self._known = {step.name: step for step in steps if not step.open}
                self._waited = {step.name for step in steps if step.open}
        found = self._known.get(name)
        if found is None:
            if self._run.lost:
                raise self._lost(name)
            if self._run.draining:
                raise self.suspend("the worker ends: handed back between two steps")
            if len(self._known) >= MAX_STEPS:
                raise self.refuse(
                    f"step {name!r}: the job has {MAX_STEPS:,} steps, and may have no more; let it end with ctx.enqueue"
                )
        return found

    async def _record(self, name: str, value: bytes, kind: str = "step", lasts: float | None = None) -> RecordedStep:
        assert self._known is not None
        step = NewStep(id=self._job.id, lease=self._job.lease, name=name, value=value, kind=kind, lasts=lasts)
        if self._rules.access is None:
            found = _unkept(step)
        else:
            self.recorded = True
            [answer] = await self._surely(lambda store: store.record_steps([step]))
            if answer is None:
                raise self._lost(name)
            found = answer
        self._known[name] = found
        return found

    async def _surely(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """While the store is away the run waits, as its outcome would; every call of a ledger may be repeated."""
        assert self._rules.access is not None
        away = 0
        while True:
            try:
                return await work(await self._rules.access.ready())
            except (StoreUnavailable, OutcomeUnknown):
                if self._rules.access.portal.inline or self._run.lost:
                    raise
                away += 1
                await asyncio.sleep(wait_after(away))

    def _other_kind(self, found: RecordedStep, wanted: str) -> StepMismatch:
        return StepMismatch(
            f"{wanted} {found.name!r}: what is kept under this name is a {found.kind}, from a time when the code was another; "
            "give it another name"
        )

    def _lost(self, name: str) -> LeaseLost:
        return LeaseLost(f"step {name!r}: the lease of this run is gone, so another run may go on with the job; end this one")


def decoded(found: RecordedStep, into: Any) -> Any:
    """What a step came to, in the type that is wanted."""
    try:
        return found.value if into is None else msgspec.json.decode(found.value_body, type=into, strict=False)
    except msgspec.ValidationError as error:
        kept = found.value_body[:200].decode(errors="replace")
        raise StepMismatch(
            f"step {found.name!r}: what is kept of it does not fit {into!r}: {error}; kept is {kept}. "
            "Take the old form as well, or give the step a version="
        ) from None


def _unkept(step: NewStep) -> RecordedStep:
    """A step as it was made, without what a store says of it."""
    from hawser.clock import SystemClock, at  # noqa: PLC0415  # only here

    now = at(SystemClock().now())
    return RecordedStep(name=step.name, value_body=step.value, kind=step.kind, at=now, lease=step.lease)


def _driven(coro: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine that waits for nothing."""
    try:
        coro.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise AssertionError("not reached")
