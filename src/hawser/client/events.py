"""Events: what an app tells jobs that wait in the middle of their handlers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from hawser.client.connection import Connection, sync
from hawser.client.new_event import NewEvent, checked_event_name, new_event
from hawser.errors import OutcomeUnknown
from hawser.store import EVENT_KEPT, Emitted, Event


class EventCalls:
    """The part of an app that tells jobs of events."""

    _connection: Connection

    async def aemit(self, name: str, body: Any = None, *, keep: float | timedelta = EVENT_KEPT) -> Emitted:
        """Say that an event has come: every job whose handler waits for it in `ctx.wait_for` goes on, and so does one that comes
        to its wait later. The body is what `wait_for` gives, any value that can be written as JSON.

        The first event of a name stays: of another one the answer has `created=False`, when the first came, and whether it says
        the same. An event is kept for `keep` seconds (7 days), and as long as a job has to go on with it; then its name is free.
        """
        return await put_event(self._connection, new_event(name, body, keep))

    async def aevent(self, name: str) -> Event | None:
        """The event of that name; None when it has not come, or is kept no longer."""
        return await (await self._connection.ready()).event(checked_event_name(name))

    emit = sync(aemit)
    event = sync(aevent)


async def put_event(connection: Connection, event: NewEvent) -> Emitted:
    """Emit an event. A lost answer is asked for again: the first event stays, so no harm is done."""
    config, lost = connection.config, None
    for turn in range(config.enqueue_tries):
        if turn and not connection.portal.inline:
            await asyncio.sleep(config.enqueue_retry_after * 2 ** (turn - 1))
        try:
            return await (await connection.ready()).emit(*event)
        except OutcomeUnknown as error:
            lost = error
    assert lost is not None
    raise lost
