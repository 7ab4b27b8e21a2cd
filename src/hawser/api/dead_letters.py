"""`/dlq`: the dead letters, one by one. `bulk.py` has many at once."""

from __future__ import annotations

import msgspec

from hawser.api.bodies import ActedOut, ConfirmIn, ReasonQuery, Replayed, ReplayIn, or_none
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.jobs import found
from hawser.api.problem import Problem
from hawser.api.views import job_view
from hawser.job import State
from hawser.redaction import shown
from hawser.value.json_value import check_json


async def show(call: Call[NoBody, NoQuery]) -> Answer:
    """One dead job in full."""
    job = await found(call.store, call.path["id"])
    if job.state is not State.DEAD:
        raise Problem(404, f"job {job.id} is {job.state}, not dead; see it at /jobs/{job.id}")
    return Answer(job_view(shown(call.app.tasks, job)))


async def requeue(call: Call[ConfirmIn, NoQuery]) -> Answer:
    """Run a dead job again, with attempts from zero."""
    id = call.path["id"]
    await call.app.arequeue(id, confirm=call.body.confirm, reason=call.body.reason, by=call.identity.name)
    return Answer(ActedOut(id=id, acted="done"))


async def replay(call: Call[ReplayIn, NoQuery]) -> Answer:
    """Put a new job with other arguments in the place of a dead one."""
    id, body = call.path["id"], call.body
    check_json("payload", bytes(body.payload), call.app.config.max_payload)
    payload = msgspec.json.decode(body.payload)
    handle = await call.app.areplay(id, payload, confirm=body.confirm, reason=body.reason, by=call.identity.name)
    return Answer(Replayed(id=handle.id, parent_id=id), 201)


async def discard(call: Call[NoBody, ReasonQuery]) -> Answer:
    """Turn a dead job into a cancelled one."""
    id = call.path["id"]
    await call.app.adiscard(id, reason=or_none(call.query.reason), by=call.identity.name)
    return Answer(ActedOut(id=id, acted="done"))
