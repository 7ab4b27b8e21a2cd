"""OpenTelemetry: a span where a job is enqueued, and one for each of its runs, linked to it.

What links them travels with the job as a tag, `trace:` and the W3C traceparent of the enqueue span: so every store keeps it,
and a job can be found by its trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from hawser.clock import Clock, SystemClock
from hawser.errors import MissingExtra, install
from hawser.job import MAX_TAGS, Claimed, NewJob
from hawser.outcome import Outcome, failure_in, gives_back
from hawser.store import Settled
from hawser.telemetry.events import Events, SettledBatch

if TYPE_CHECKING:
    from opentelemetry.trace import Link, SpanContext

TAG: Final = "trace:"


class Tracing(Events):
    """Listens to workers and enqueues. Spans of runs are made when they are settled, with the times they had."""

    def __init__(self, clock: Clock | None = None) -> None:
        try:
            from opentelemetry import trace  # noqa: PLC0415  # an extra
        except ModuleNotFoundError as error:
            raise MissingExtra(f"tracing: it needs the package 'opentelemetry-api'; {install('otel')}") from error
        self._clock = clock or SystemClock()
        self._trace = trace
        self._tracer = trace.get_tracer("hawser")

    @contextmanager
    def enqueueing(self, jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
        """A span around the write, and the jobs with its name on them."""
        tasks = sorted({job.task for job in jobs})
        about: dict[str, Any] = {"messaging.system": "hawser", "hawser.tasks": tasks, "hawser.jobs": len(jobs)}
        with self._tracer.start_as_current_span("enqueue", kind=self._trace.SpanKind.PRODUCER, attributes=about) as span:
            context = span.get_span_context()
            yield [_marked(job, context) for job in jobs] if context.is_valid else jobs

    def settled(self, batch: SettledBatch) -> None:
        now = self._clock.now() * 1_000
        for job, settlement, answer, seconds in zip(batch.jobs, batch.settlements, batch.answers, batch.seconds, strict=True):
            if seconds >= 0 and not gives_back(settlement.outcome):
                self._run(job, settlement.outcome, answer.said, now - round(seconds * 1e9), now)

    def _run(self, job: Claimed, outcome: Outcome, answer: Settled, began: int, ended: int) -> None:
        span = self._tracer.start_span(
            f"run {job.task}",
            kind=self._trace.SpanKind.CONSUMER,
            links=self._links(job),
            start_time=began,
            attributes={
                "messaging.system": "hawser",
                "messaging.message.id": job.id,
                "hawser.task": job.task,
                "hawser.queue": job.queue,
                "hawser.attempt": job.attempt,
                "hawser.settled": answer.value,
            },
        )
        if (failure := failure_in(outcome)) is not None:
            span.set_status(self._trace.StatusCode.ERROR, failure.error.partition("\n")[0][:200])
        span.end(ended)

    def _links(self, job: Claimed) -> list[Link]:
        return [self._trace.Link(context) for tag in job.tags if (context := self._context(tag)) is not None]

    def _context(self, tag: str) -> SpanContext | None:
        if not tag.startswith(TAG):
            return None
        try:
            _, trace_id, span_id, flags = (int(part, 16) for part in tag.removeprefix(TAG).split("-"))
        except ValueError:  # a tag of the user's own
            return None
        return self._trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=self._trace.TraceFlags(flags))


def _marked(job: NewJob, context: SpanContext) -> NewJob:
    """The job with its trace, unless it came with one or has no room for a tag."""
    if len(job.tags) >= MAX_TAGS or any(tag.startswith(TAG) for tag in job.tags):
        return job
    return replace(job, tags=(*job.tags, f"{TAG}00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"))
