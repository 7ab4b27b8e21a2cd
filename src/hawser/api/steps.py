"""`/jobs/{id}/steps`: what the runs of a job have achieved."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Raw

from hawser.api.bodies import TEXT, ActedOut, ConfirmIn, Out, said
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.jobs import seen
from hawser.store import MAX_STEP_NAME, RecordedStep


class StepView(Out):
    """A recorded step: a later run of the job does not make it again.

    A step of kind `wait` lasts, `woken` may go on: `at` says since when, `until` until when, `event` for what; without an event
    the value has the ids of the jobs that it waits for. Of kind `event`, `timeout` or `gather` it is over: it lasted from `at` to
    `until`.
    """

    name: str
    kind: str
    value: Raw
    at: datetime
    lease: int
    until: datetime | None
    event: str | None


class StepsOut(Out):
    """The steps of a job, in the order of their records."""

    steps: list[StepView]


class RewindIn(ConfirmIn, kw_only=True):
    """From where to go on: behind this step. Null forgets all of them."""

    to: Annotated[str, said(minLength=1, maxLength=MAX_STEP_NAME, pattern=TEXT)] | None


async def rewind(call: Call[RewindIn, NoQuery]) -> Answer:
    """Run a dead or cancelled job again from behind one of its steps."""
    id, sent = call.path["id"], call.body
    await call.app.arewind(id, to=sent.to, confirm=sent.confirm, reason=sent.reason, by=call.identity.name)
    return Answer(ActedOut(id=id, acted="done"))


async def show(call: Call[NoBody, NoQuery]) -> Answer:
    """The recorded steps of a job, in their order."""
    job = await seen(call)
    return Answer(StepsOut([_view(step) for step in await call.store.steps(job.id)]))


def _view(step: RecordedStep) -> StepView:
    return StepView(step.name, step.kind, Raw(step.value_body), step.at, step.lease, step.until, step.event)
