"""`/events/{name}`: events that jobs wait for."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Raw, UnsetType

from hawser.api.bodies import In, Out, said
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.problem import Problem
from hawser.client.new_event import checked_event_name, event_from_json
from hawser.clock import MAX_DELAY
from hawser.store import EVENT_KEPT


class EventIn(In):
    """An event: what it says, and for how long it is kept at least."""

    body: Raw | UnsetType = UNSET
    """Any JSON; null when it is left out. `ctx.wait_for` gives it to handlers."""
    keep: Annotated[float, said(exclusiveMinimum=0, maximum=MAX_DELAY)] | UnsetType = UNSET
    """Seconds; 7 days when it is left out."""


class EmittedOut(Out):
    """What became of an event."""

    name: str
    created: bool
    """False: one of this name came before, and stays."""
    at: datetime
    """When the event that stands came."""
    same: bool
    """Whether the event that stands says the same."""


class EventView(Out):
    """An event that has come."""

    name: str
    body: Raw
    at: datetime
    until: datetime
    """How long it is kept at least."""


async def emit(call: Call[EventIn, NoQuery]) -> Answer:
    """Say that an event has come: the jobs that wait for it go on."""
    if call.identity.tasks is not None or call.identity.queues is not None:
        raise Problem(403, "this key is for some tasks or queues, and an event may concern jobs of any; use a key without them")
    sent = call.body
    body = b"null" if sent.body is UNSET else bytes(sent.body)
    event = event_from_json(call.path["name"], body, EVENT_KEPT if sent.keep is UNSET else sent.keep)
    emitted = await call.store.emit(*event)
    told = EmittedOut(name=event.name, created=emitted.created, at=emitted.at, same=emitted.same)
    return Answer(told, 201 if emitted.created else 200)


async def show(call: Call[NoBody, NoQuery]) -> Answer:
    """An event that has come."""
    name = checked_event_name(call.path["name"])
    event = await call.store.event(name)
    if event is None:
        raise Problem(404, f"no event is called {name!r}: it has not come, or is kept no longer")
    return Answer(EventView(name=name, body=Raw(event.body), at=event.at, until=event.until))
