"""Spans of enqueues and runs, linked."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from hawser import Drop, Hawser
from hawser.telemetry.tracing import TAG, Tracing
from tests.worker.conftest import ended, working


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    return exporter


@pytest.fixture
def app(spans: InMemorySpanExporter) -> Hawser:
    app = Hawser("memory://")
    app.trace()

    @app.task
    async def work() -> None: ...

    @app.task
    async def fail() -> None:
        raise Drop("no such user")

    return app


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


async def test_a_run_is_linked_to_its_enqueue(app: Hawser, spans: InMemorySpanExporter):
    handle = await app.aenqueue("work")
    async with working(app):
        await ended(app, handle.id)
    [enqueued], [run] = named(spans, "enqueue"), named(spans, "run work")
    assert (enqueued.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert [link.context.span_id for link in run.links] == [enqueued.context.span_id]
    assert [link.context.trace_id for link in run.links] == [enqueued.context.trace_id]
    assert run.attributes is not None
    assert (run.attributes["messaging.message.id"], run.attributes["hawser.attempt"]) == (handle.id, 1)
    assert run.start_time is not None
    assert run.end_time is not None
    assert run.start_time <= run.end_time


async def test_a_failed_run_is_an_error(app: Hawser, spans: InMemorySpanExporter):
    handle = await app.aenqueue("fail")
    async with working(app):
        await ended(app, handle.id)
    [run] = named(spans, "run fail")
    assert run.status.status_code is StatusCode.ERROR
    assert "no such user" in (run.status.description or "")


async def test_many_jobs_are_one_span_and_each_has_its_mark(app: Hawser, spans: InMemorySpanExporter):
    handles = await app.aenqueue_many([app.tasks["work"].job() for _ in range(3)])
    [enqueued] = named(spans, "enqueue")
    tags = {(await app.aget(handle.id)).tags for handle in handles}
    context = enqueued.context
    assert tags == {(f"{TAG}00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}",)}


async def test_marks_of_others_and_full_tags_stay(app: Hawser):
    own = f"{TAG}00-{1:032x}-{2:016x}-01"
    full = tuple(f"t{n}" for n in range(16))
    first = await app.aenqueue("work", tags=[own])
    second = await app.aenqueue("work", tags=full)
    assert ((await app.aget(first.id)).tags, (await app.aget(second.id)).tags) == ((own,), full)


@pytest.mark.parametrize("tag", ["trace:", "trace:00-xx-yy-01", "trace:1-2-3", "trace:1-2-3-4-5", "other"])
def test_a_tag_that_is_no_trace_is_no_link(tag: str):
    assert Tracing()._context(tag) is None


def test_without_asking_nothing_is_traced(spans: InMemorySpanExporter):
    app = Hawser("memory://")

    @app.task
    def work() -> None: ...

    assert app.get(work.enqueue().id).tags == ()
    assert spans.get_finished_spans() == ()
