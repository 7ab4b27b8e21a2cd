"""`JobQueue`: deliveries, acks, keys, and what may be a payload."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.redis_servers import kinds, own_store, shared

from hawser import ConfigError, InvalidJob, JobQueue, QueueClosed
from hawser.queue import Delivery
from hawser.stores.redis.address import LaneKind
from hawser.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> Iterator[JobQueue]:
    with JobQueue(clock=clock) as queue:
        yield queue


def test_a_job_is_delivered_once_until_its_visibility_ends(queue: JobQueue, clock: ManualClock):
    id = queue.enqueue({"order": 17})
    first = queue.dequeue(visibility_timeout=10)
    assert first is not None
    assert (first.job_id, first.payload, first.delivery_count) == (id, {"order": 17}, 1)
    assert queue.dequeue() is None
    clock.advance(11)
    second = queue.dequeue(visibility_timeout=10)
    assert second is not None
    assert (second.job_id, second.delivery_count) == (id, 2)
    assert queue.ack(first) is False, "the first delivery is over"
    assert queue.ack(second) is True
    assert queue.ack(second) is False
    assert queue.stats() == {"visible": 0, "delayed": 0, "in_flight": 0, "dead": 0, "dedup_keys": 0}


def test_a_delivery_that_ran_out_is_still_its_consumers_until_it_is_delivered_again(queue: JobQueue, clock: ManualClock):
    for _ in range(3):
        queue.enqueue("work")
    first, second, third = (queue.dequeue(visibility_timeout=10) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    clock.advance(60)
    assert queue.ack(first) is True
    assert queue.nack(second, requeue_delay=100) is True
    assert queue.extend(third, visibility_timeout=10) is True
    assert queue.dequeue() is None
    clock.advance(11)
    again = queue.dequeue()
    assert again is not None
    assert again.job_id == third.job_id
    assert (queue.ack(third), queue.nack(third), queue.extend(third)) == (False, False, False)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_delivery_that_was_taken_back_and_not_delivered_again_is_acked(queue: JobQueue, clock: ManualClock, by_id: bool):
    queue.enqueue("old")
    late = queue.dequeue(visibility_timeout=10)
    assert late is not None
    clock.advance(11)
    assert queue.stats()["visible"] == 1
    assert queue.ack(late.job_id if by_id else late) is True
    assert (queue.stats()["visible"], queue.stats()["in_flight"]) == (0, 0)
    assert queue.dequeue() is None
    assert queue.ack(late.job_id if by_id else late) is False


def test_a_delivery_that_was_nacked_or_delivered_again_is_over(queue: JobQueue, clock: ManualClock):
    id = queue.enqueue("work")
    first = queue.dequeue(visibility_timeout=10)
    assert first is not None
    assert queue.nack(first) is True
    assert (queue.ack(first), queue.ack(id)) == (False, False)
    clock.advance(11)
    second = queue.dequeue(visibility_timeout=10)
    assert second is not None
    clock.advance(11)
    assert queue.stats()["visible"] == 1
    third = queue.dequeue()
    assert third is not None
    assert (queue.ack(first), queue.ack(second), queue.ack(third)) == (False, False, True)


def test_a_nacked_job_comes_back_after_its_delay(queue: JobQueue, clock: ManualClock):
    queue.enqueue("work")
    delivery = queue.dequeue()
    assert delivery is not None
    assert queue.nack(delivery, requeue_delay=5)
    assert queue.dequeue() is None
    clock.advance(6)
    again = queue.dequeue()
    assert again is not None
    assert again.delivery_count == 2


def test_a_key_makes_no_second_job_within_its_window(queue: JobQueue, clock: ManualClock):
    first = queue.enqueue(1, idempotency_key="order:17")
    assert queue.enqueue(2, idempotency_key="order:17") == first
    assert queue.stats()["dedup_keys"] == 1
    delivery = queue.dequeue()
    assert delivery is not None
    queue.ack(delivery)
    assert queue.enqueue(3, idempotency_key="order:17") == first
    clock.advance(301)
    assert queue.enqueue(4, idempotency_key="order:17") != first


PLAIN: list[Any] = [None, True, 0, -1.5, "text", [], {}, [1, [2, {"a": None}]], {"a": [True, "b"], "": 1}]


@pytest.mark.parametrize("payload", PLAIN, ids=repr)
def test_a_payload_comes_back_as_it_was(queue: JobQueue, payload: Any):
    queue.enqueue(payload)
    delivery = queue.dequeue()
    assert delivery is not None
    assert delivery.payload == payload
    assert type(delivery.payload) is type(payload)


CHANGED: list[tuple[Any, str]] = [
    (b"\x00\xff", "payload: a `bytes` does not come back from JSON as it was; pass a text"),
    ((1, 2), "payload: a `tuple` does not come back from JSON as it was; pass a list"),
    ({"rows": [1, (2, 3)]}, r"payload.rows\[1\]: a `tuple`"),
    ({"a": {1, 2}}, "payload.a: a `set`"),
    ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, "payload.when: a `datetime` .* pass its isoformat"),
    ({"day": date(2026, 1, 1)}, "payload.day: a `date`"),
    ({"price": Decimal("1.5")}, r"payload.price: a `Decimal` .* pass str\(value\)"),
    ({"id": uuid.UUID(int=1)}, "payload.id: a `UUID`"),
    ({1: "a"}, "payload: the key 1 is a `int`; JSON keys are texts"),
    ([{"a": bytearray(b"x")}], r"payload\[0\].a: a `bytearray`"),
]


@pytest.mark.parametrize(("payload", "words"), CHANGED, ids=lambda value: repr(value)[:30])
def test_a_payload_that_would_be_changed_is_refused(queue: JobQueue, payload: Any, words: str):
    with pytest.raises(InvalidJob, match=words):
        queue.enqueue(payload)
    assert queue.stats()["visible"] == 0


# To the end: returned, dead, replayed, closed. On every store.


REDIS: dict[str, LaneKind] = {"redis": "lists", "streams": "streams"}


@pytest.fixture(params=["memory", "journal", "sqlite", "postgres", *REDIS])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., JobQueue]]:
    """Makes queues on one store; in memory each has its own, and a journal has one owner."""
    url = "memory://"
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/queue.db"
    elif request.param == "journal":
        url = f"memory://?journal={tmp_path}/journal-"
    elif request.param in REDIS:
        url = own_store(shared(kinds()[0]), REDIS[request.param])
    elif request.param == "postgres":
        url = with_schema(server(versions()[0]), own_schema())
        asyncio.run(emptied(url))
    made: list[JobQueue] = []

    def new(**settings: Any) -> JobQueue:
        # A journal has one owner: a second queue takes the first one's when that is closed, and else another.
        own = str(sum(not queue._closed for queue in made)) if "journal" in url else ""
        made.append(JobQueue(url + own, clock=clock, **settings))
        return made[-1]

    yield new
    for queue in made:
        queue.close()


def test_a_returned_delivery_goes_first(make: Callable[..., JobQueue], clock: ManualClock):
    queue = make()
    for n in range(10):
        queue.enqueue(n)
        clock.advance(1)
    for _ in range(3):
        first = queue.dequeue()
        assert first is not None
        assert first.payload == 0
        clock.advance(2)
        assert queue.nack(first)
    assert first is not None
    assert queue.nack(first) is False
    taken = [delivery.payload for _ in range(10) if (delivery := queue.dequeue()) is not None]
    assert taken == list(range(10))


def test_a_delivery_that_is_returned_with_a_delay_waits_for_it(make: Callable[..., JobQueue], clock: ManualClock):
    queue = make()
    queue.enqueue("parcel")
    delivery = queue.dequeue()
    assert delivery is not None
    assert queue.nack(delivery, requeue_delay=60)
    assert queue.stats() == {"visible": 0, "delayed": 1, "in_flight": 0, "dead": 0, "dedup_keys": 0}
    assert queue.dequeue() is None
    clock.advance(61)
    assert queue.dequeue() is not None


def test_dead_deliveries_are_told_listed_and_replayed(make: Callable[..., JobQueue], clock: ManualClock):
    told: list[Delivery] = []
    queue = make(max_deliveries=2, on_dead=told.append)
    by_nack, by_time = queue.enqueue("nacked"), queue.enqueue("run out")
    for _ in range(2):
        first, second = queue.dequeue(visibility_timeout=10), queue.dequeue(visibility_timeout=10)
        assert first is not None
        assert second is not None
        assert queue.nack(first if first.job_id == by_nack else second)
        clock.advance(11)
        queue.stats()
    assert [(delivery.job_id, delivery.payload, delivery.delivery_count) for delivery in told] == [
        (by_nack, "nacked", 2),
        (by_time, "run out", 2),
    ]
    assert queue.stats()["dead"] == 2
    assert {delivery.job_id for delivery in queue.dead()} == {by_nack, by_time}
    assert queue.replay(by_nack) is True
    assert queue.replay(by_nack) is False, "it is not dead any more"
    assert queue.replay(told[1]) is True
    assert queue.dead() == []
    again = queue.dequeue()
    assert again is not None
    assert again.delivery_count == 1
    assert queue.replay("no such job") is False


def test_only_the_queues_own_dead_letters_are_its_own(make: Callable[..., JobQueue]):
    mine, other = make(queue="mine", max_deliveries=1), make(queue="other", max_deliveries=1)
    id = mine.enqueue(1)
    delivery = mine.dequeue()
    assert delivery is not None
    assert mine.nack(delivery)
    assert other.dead() == []
    assert other.replay(id) is False
    assert len(mine.dead()) == 1


def test_a_callback_that_fails_costs_nothing(make: Callable[..., JobQueue], caplog: pytest.LogCaptureFixture):
    def broken(_: Delivery) -> None:
        raise ValueError("no")

    queue = make(max_deliveries=1, on_dead=broken)
    queue.enqueue(1)
    delivery = queue.dequeue()
    assert delivery is not None
    assert queue.nack(delivery) is True
    assert "on_dead failed" in caplog.text


def test_a_closed_queue_refuses_work_and_hands_back_what_is_in_flight(make: Callable[..., JobQueue], clock: ManualClock):
    queue = make()
    ids = [queue.enqueue(n) for n in range(3)]
    first, second = queue.dequeue(), queue.dequeue()
    assert first is not None
    assert second is not None
    assert queue.ack(first)
    assert queue.close() == [second]
    assert queue.close() == []
    for call in (lambda: queue.enqueue(1), queue.dequeue, queue.stats, queue.dead, lambda: queue.replay(ids[0])):
        with pytest.raises(QueueClosed):
            call()
    assert (queue.ack(second), queue.nack(second), queue.extend(second)) == (False, False, False)
    other = make()
    if other.stats()["visible"]:  # in memory each queue has a store of its own
        assert other.stats()["visible"] == 2
        again = other.dequeue()
        assert again is not None
        assert again.delivery_count == 1, "the delivery that was handed back does not count"


def test_a_delivery_says_when_it_was_enqueued(make: Callable[..., JobQueue], clock: ManualClock):
    queue = make()
    when = datetime.fromtimestamp(clock.now() / 1_000_000, UTC)
    queue.enqueue(1)
    clock.advance(5)
    delivery = queue.dequeue()
    assert delivery is not None
    assert delivery.enqueued_at == when


def test_a_key_holds_while_its_job_is_live_or_its_window_lasts(make: Callable[..., JobQueue], clock: ManualClock):
    queue = make(idempotency_ttl=60)
    id = queue.enqueue(1, "key")
    clock.advance(61)
    assert queue.enqueue(2, "key") == id, "the window is over, the job is live"
    delivery = queue.dequeue()
    assert delivery is not None
    assert queue.ack(delivery)
    other = queue.enqueue(3, "key")
    assert other != id
    delivery = queue.dequeue()
    assert delivery is not None
    assert queue.ack(delivery)
    assert queue.enqueue(4, "key") == other, "the job is gone, the window lasts"
    clock.advance(61)
    assert queue.enqueue(5, "key") != other


def test_a_callback_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="on_dead"):
        JobQueue(on_dead=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [2.5, "2", True, 0, -1])
def test_deliveries_are_a_whole_number(given: Any):
    with pytest.raises(ConfigError, match="max_deliveries"):
        JobQueue(max_deliveries=given)


@pytest.mark.parametrize("given", ["5", None, True, float("nan"), -1])
def test_times_are_numbers(queue: JobQueue, given: Any):
    with pytest.raises(ConfigError, match="idempotency_ttl"):
        JobQueue(idempotency_ttl=given)
    with pytest.raises(InvalidJob, match="default_visibility_timeout"):
        JobQueue(default_visibility_timeout=given)
    queue.enqueue("work")
    delivery = queue.dequeue()
    assert delivery is not None
    with pytest.raises(InvalidJob, match="requeue_delay"):
        queue.nack(delivery, requeue_delay=given)
    if given is not None:  # the queue's own
        with pytest.raises(InvalidJob, match="visibility_timeout"):
            queue.dequeue(visibility_timeout=given)
        with pytest.raises(InvalidJob, match="visibility_timeout"):
            queue.extend(delivery, visibility_timeout=given)
