"""Emits what durable flows wait for, as soon as they say that they come to it, and looks whether they wake."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.lab.load import Ongoing
from hawser.lab.step_judge import WAKE_BAR_S, DurableFlow, EventWake
from hawser.lab.steps_app import events_of
from hawser.store import Store

EMITS_AT_ONCE: Final = 16
"""Events that are emitted at a time."""

AT_THE_SAME_MOMENT: Final = 0.3
"""The share of events that come while the job is about to be held; the others come within a second."""

LOOK_EVERY_S: Final = 0.02
GIVEN_UP_AFTER_S: Final = 30.0
"""Seconds after which a job that does not wake is no longer looked at: at the end of all it counts as one that still waits."""


class Emitter(Ongoing):
    """Follows the lines of the handlers for as long as the context lasts. To emit an event again changes nothing."""

    def __init__(self, store: Store, lines: Path, flows: Iterable[DurableFlow], seed: int) -> None:
        super().__init__()
        self._store = store
        self._lines = lines
        self._dice = random.Random(seed)  # noqa: S311  # no secret: a run that can be repeated
        self._open: dict[str, DurableFlow] = {}
        for flow in flows:
            paid, sent = events_of(flow.id)
            self._open |= {paid: flow, sent: flow} if flow.comes else {paid: flow}
        self._read = 0
        self._slots = asyncio.Semaphore(EMITS_AT_ONCE)
        self._first: list[str] = []
        self.under_way = 0
        """Events that are about to be emitted, or whose job is not awake."""
        self.wakes: list[EventWake] = []
        """Of each event that was emitted, when its job is awake."""
        self.errors = 0
        """Calls that were not answered, or by an absent store."""

    def first(self, flows: Iterable[DurableFlow]) -> None:
        """Emit the first event of these flows before it is waited for."""
        self._first += [events_of(flow.id)[0] for flow in flows]

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while not self._stop:
                came, self._first = [*self._first, *self._came()], []
                for event in came:
                    if (flow := self._open.pop(event, None)) is not None:
                        self.under_way += 1
                        delay = 0.0 if self._dice.random() < AT_THE_SAME_MOMENT else self._dice.random()
                        group.create_task(self._emit(event, flow, delay))
                await asyncio.sleep(LOOK_EVERY_S)

    def _came(self) -> list[str]:
        """The events that runs have come to since the last look, as far as lines are whole."""
        if not self._lines.exists():
            return []
        with self._lines.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [line[3:].decode() for line in whole.splitlines() if line.startswith(b"at ")]

    async def _emit(self, event: str, flow: DurableFlow, delay: float) -> None:
        await asyncio.sleep(delay)
        async with self._slots:
            held = bool(await self._waits(event, flow))
            body, tries, began = msgspec.json.encode(flow.number), 0, time.monotonic()
            while True:
                tries += 1
                try:
                    await self._store.emit(event, body, keep=86_400)
                    break
                except (StoreUnavailable, OutcomeUnknown):
                    self.errors += 1
                    await asyncio.sleep(0.1)
            late = await self._awaken(event, flow)
        seconds = time.monotonic() - began
        if not held:
            # It may have been about to be held: the second of the two has to see the first.
            await asyncio.sleep(LOOK_EVERY_S)
            late |= await self._awaken(event, flow)
        self.wakes.append(EventWake(event, held and tries == 1, seconds, late))
        self.under_way -= 1

    async def _awaken(self, event: str, flow: DurableFlow) -> bool:
        """Look until the job is awake; whether that was too late. The time for which the store is away does not count."""
        began = since = time.monotonic()
        late = False
        while time.monotonic() - began < GIVEN_UP_AFTER_S:
            waits = await self._waits(event, flow)
            if waits is False:
                return late
            if waits is None:
                since = time.monotonic()
            late |= time.monotonic() - since > WAKE_BAR_S
            await asyncio.sleep(LOOK_EVERY_S)
        return True

    async def _waits(self, event: str, flow: DurableFlow) -> bool | None:
        """Whether the job is held for the event; None when the store is away."""
        try:
            steps = await self._store.steps(flow.id)
        except (StoreUnavailable, OutcomeUnknown):
            self.errors += 1
            return None
        return any(step.event == event and step.kind == "wait" for step in steps)
