"""The jobs of one `ctx.gather`: what they are called, and what they came to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from hawser.errors import FieldError, InvalidJob, StepMismatch
from hawser.job import NewJob, State, new_job
from hawser.store import MAX_STEP_VALUE, JobEnd, RecordedStep
from hawser.stores.dependencies import check_order
from hawser.value.ids import derived_id

MAX_GATHERED: Final = 5_000
"""Jobs of one gather: their ids stand in one step."""


def children_of(parent: str, name: str, jobs: Sequence[object]) -> tuple[NewJob, ...]:
    """The jobs under ids that follow from the parent and the name: added again, they add nothing. `InvalidJob` names a fault."""
    if len(jobs) > MAX_GATHERED:
        raise InvalidJob(FieldError("jobs", f"{len(jobs):,} jobs; at most {MAX_GATHERED:,}: gather them in several steps"))
    checked = [_checked(n, job) for n, job in enumerate(jobs)]
    ids = {job.id: derived_id(parent, name, str(n)) for n, job in enumerate(checked)}
    if len(ids) < len(checked):
        raise InvalidJob(FieldError("jobs", "a job stands there twice; make one for each with task.job(…)"))
    children = tuple(
        msgspec.structs.replace(job, id=ids[job.id], waits_for=tuple(ids.get(id, id) for id in job.waits_for)) for job in checked
    )
    check_order(children)
    return children


def _checked(place: int, job: object) -> NewJob:
    if not isinstance(job, NewJob):
        raise InvalidJob(FieldError(f"jobs[{place}]", f"{type(job).__qualname__} is not a new job; make one with task.job(…)"))
    if job.key is not None:
        text = "a job that is gathered is known by its place and has no key; leave the key out"
        raise InvalidJob(FieldError(f"jobs[{place}].key", text))
    return new_job(**msgspec.structs.asdict(job))


def gone_among(children: Sequence[NewJob], ends: Sequence[JobEnd | None]) -> NewJob | None:
    """The first of these jobs that the store does not have any more."""
    return next((child for child, end in zip(children, ends, strict=True) if end is not None and end.state is None), None)


def joined_results(ends: Sequence[JobEnd | None]) -> bytes | None:
    """What the jobs returned, as JSON text; None as long as one is not done. `InvalidJob` when it is too much for one step."""
    if any(end is None or end.state is not State.DONE for end in ends):
        return None
    value = b"[%s]" % b",".join(end.result or b"null" for end in ends if end is not None)
    if len(value) > MAX_STEP_VALUE:
        text = f"they come to {len(value):,} bytes of JSON, at most {MAX_STEP_VALUE:,} are kept; let the jobs return references"
        raise InvalidJob(FieldError("results", text))
    return value


def results_in(found: RecordedStep, children: Sequence[NewJob]) -> list[msgspec.Raw]:
    """What each of the jobs returned, in their order, as JSON text."""
    results = msgspec.json.decode(found.value_body, type=list[msgspec.Raw])
    if len(results) != len(children):
        raise StepMismatch(
            f"gather {found.name!r}: what is kept are the results of {len(results):,} jobs, and now there are {len(children):,}: "
            "the code was another then; give it another name="
        )
    return results
