"""Waits in the middle of a handler: for events, and for jobs of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from hawser.clock import MAX_DELAY
from hawser.errors import ConfigError, EventTimeout, FieldError, InvalidJob
from hawser.handler.gathering import children_of, gone_among, joined_results, results_in
from hawser.handler.ledger import Ledger, ResultReader, RunLease, StepRules, decoded
from hawser.job import Claimed, NewJob
from hawser.outcome import Held
from hawser.store import ENDS_READ, Arrival, JobEnd, RecordedStep

NOT_GIVEN: Final = object()
"""A timeout that the handler left out. Type checkers refuse that; where none looks, the run fails for good, by that name."""


class WaitingLedger(Ledger):
    """The steps of one run, and its waits: steps that may take days to come to something."""

    def __init__(self, job: Claimed, run: RunLease, rules: StepRules) -> None:
        super().__init__(job, run, rules)
        self.children: tuple[NewJob, ...] = ()
        """The jobs that the run was suspended for."""

    # What a handler calls. A coroutine in an async handler, else the value.

    def wait_for(self, event: str, timeout: object, into: Any) -> Any:
        if self._rules.is_async:
            return self._wait_for_async(event, timeout, into)
        hold = self._hold_for(event, timeout)
        return self._passed(self._wait(self._come_to(hold)), hold, into)

    async def _wait_for_async(self, event: str, timeout: object, into: Any) -> Any:
        hold = self._hold_for(event, timeout)
        return self._passed(await self._come_to(hold), hold, into)

    def gather(self, jobs: Sequence[NewJob], name: str) -> Any:
        if self._rules.is_async:
            return self._gather_async(jobs, name)
        if not (children := self._children(jobs, name)):
            return []
        return self._results(self._wait(self._gathered(name, children)), name, children)

    async def _gather_async(self, jobs: Sequence[NewJob], name: str) -> list[Any]:
        if not (children := self._children(jobs, name)):
            return []
        return self._results(await self._gathered(name, children), name, children)

    # Their parts.

    def _hold_for(self, event: str, timeout: object) -> Held:
        name = self._begin(event, None, "wait_for")
        self._check_access("wait_for", name)
        if timeout is NOT_GIVEN:
            raise self.refuse(f"wait_for {name!r}: timeout: it is not given; write timeout=SECONDS; None waits without an end")
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_DELAY
        ):
            raise self.refuse(
                f"wait_for {name!r}: timeout: {timeout!r} is not a time from 0 s to 10 years; None waits without an end"
            )
        return Held(name, event=name, timeout=seconds)

    def _check_access(self, call: str, name: str) -> None:
        if self._rules.access is None:
            raise ConfigError(
                f"{call} {name!r}: a task that is called like a function has no job that could wait; enqueue it, in a test with "
                "hawser.testing"
            )

    async def _come_to(self, hold: Held, value: bytes | None = None) -> RecordedStep:
        """What a wait came to; open when the run has to be held."""
        found = await self._find(hold.name)
        if found is not None:
            return found
        self.recorded = True
        arrival = Arrival(id=self._job.id, lease=self._job.lease, name=hold.name, event=hold.event, value=value)
        answer = await self._surely(lambda store: store.arrive(arrival))
        if answer is None:
            raise self._lost(hold.name)
        if not answer.open:
            assert self._known is not None
            self._known[hold.name] = answer
        return answer

    def _passed(self, found: RecordedStep, hold: Held, into: Any) -> Any:
        if found.open:
            raise self.suspend(hold.reason, hold=hold)
        if found.kind == "timeout":
            raise EventTimeout(f"wait_for {hold.name!r}: the event did not come before {found.until:%Y-%m-%d %H:%M:%S} UTC")
        if found.kind != "event":
            raise self._other_kind(found, "wait_for")
        return decoded(found, into)

    def _children(self, jobs: Sequence[NewJob], name: str) -> tuple[NewJob, ...]:
        full = self._begin(name, None, "gather")
        self._check_access("gather", full)
        try:
            children = children_of(self._job.id, full, jobs)
            self._check_order(children)
            if (results := self._results_of()) is not None:
                for task in {child.task for child in children}:
                    results.check_kept(task)
        except (InvalidJob, ConfigError) as error:
            raise self.refuse(f"gather {full!r}: {error}") from error
        return children

    def _check_order(self, children: Sequence[NewJob]) -> None:
        """`InvalidJob` when a child would wait for this job, which waits for the child."""
        job = self._job
        for n, child in enumerate(children):
            if self._rules.ordered and job.group is not None and (child.task, child.group) == (job.task, job.group):
                text = "the jobs of this group start in their order, so it would wait for this job; give it another group or task"
                raise InvalidJob(FieldError(f"jobs[{n}].group", text))

    def _results_of(self) -> ResultReader | None:
        return None if self._rules.access is None else self._rules.access.results

    async def _gathered(self, name: str, children: Sequence[NewJob]) -> RecordedStep | None:
        """What the jobs came to; None when the run has to be held for them. They are added when it is."""
        found = await self._find(name)
        if found is not None or name not in self._waited:
            return found
        ends: list[JobEnd | None] = []
        for first in range(0, len(children), ENDS_READ):
            some = [child.id for child in children[first : first + ENDS_READ]]
            ends += await self._surely(lambda store, some=some: store.ended(some))  # type: ignore[misc]
        if (gone := gone_among(children, ends)) is not None:
            raise self.refuse(
                f"gather {name!r}: job {gone.id} of task {gone.task!r} was removed before its result was read; "
                "keep done jobs of that task for longer (its retention)"
            )
        try:
            value = joined_results(ends)
        except InvalidJob as error:
            raise self.refuse(f"gather {name!r}: {error}") from error
        return None if value is None else await self._come_to(Held(name), value)

    def _results(self, found: RecordedStep | None, name: str, children: tuple[NewJob, ...]) -> list[Any]:
        if found is None:
            hold = Held(name, jobs=tuple(child.id for child in children))
            self.children = children
            raise self.suspend(hold.reason, hold=hold)
        if found.kind != "gather":
            raise self._other_kind(found, "gather")
        decode, each = self._results_of(), zip(children, results_in(found, children), strict=True)
        return [msgspec.json.decode(raw) if decode is None else decode.decoded(child.task, bytes(raw)) for child, raw in each]
