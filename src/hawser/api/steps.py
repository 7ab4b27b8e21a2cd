"""`/jobs/{id}/steps`: what the runs of a job have achieved."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw

from hawser.api.bodies import Out
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.jobs import seen
from hawser.store import RecordedStep


class StepView(Out):
    """A recorded step: a later run of the job does not make it again. `until` is the end of a sleep."""

    name: str
    kind: str
    value: Raw
    at: datetime
    lease: int
    until: datetime | None


class StepsOut(Out):
    """The steps of a job, in the order of their records."""

    steps: list[StepView]


async def show(call: Call[NoBody, NoQuery]) -> Answer:
    """The recorded steps of a job, in their order."""
    job = await seen(call)
    return Answer(StepsOut([_view(step) for step in await call.store.steps(job.id)]))


def _view(step: RecordedStep) -> StepView:
    return StepView(step.name, step.kind, Raw(step.value_body), step.at, step.lease, step.until)
