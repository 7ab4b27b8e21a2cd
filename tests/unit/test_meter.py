"""The meter, its readings and their text; percentiles of buckets."""

import msgspec
import pytest

from hawser.job import Claimed, State
from hawser.outcome import Cancelled, Dead, Done, Failed, Failure, Outcome, Released, Snoozed, follow
from hawser.store import Reclaimed, SettleAnswer, Settled, Settlement
from hawser.store.rollup import BUCKETS, bucket_of, percentile
from hawser.telemetry import metric
from hawser.telemetry.events import ClaimedBatch, Events, Listeners, SettledBatch
from hawser.telemetry.exposition import Gauge, expose
from hawser.telemetry.meter import MOST_LABELS, SAMPLE, Meter, Readings
from hawser.telemetry.metric import METRICS
from hawser.testing.clock import ManualClock


def a_job(clock: ManualClock, *, waited: float = 0.0, queue: str = "q", task: str = "t", attempt: int = 1) -> Claimed:
    return Claimed(
        id="x",
        task=task,
        queue=queue,
        body=b"{}",
        priority=5,
        attempt=attempt,
        max_attempts=3,
        timeout=60.0,
        lease=1,
        run_at_us=clock.now() - round(waited * 1_000_000),
        enqueued_at_us=0,
    )


def settled(job: Claimed, outcome: Outcome, *, asked: bool = False, lost: bool = False, seconds: float = 0.2) -> SettledBatch:
    step = follow(outcome, attempt=job.attempt, max_attempts=job.max_attempts, cancel_asked=asked)
    answer = SettleAnswer(Settled.SETTLED, job.task, job.queue, step.state, step.due_in)
    answers = [SettleAnswer(Settled.LOST) if lost else answer]
    return SettledBatch([Settlement(job.id, job.lease, outcome)], answers, [job], [seconds])


def test_a_claim_is_counted_and_its_waits_are_timed():
    clock = ManualClock()
    meter = Meter(clock)
    meter.claimed(ClaimedBatch([a_job(clock, waited=0.3), a_job(clock, waited=4.0), a_job(clock, queue="r")], 0.002))
    assert meter.readings.counts["hawser_claimed_total"] == {("q", "t"): 2, ("r", "t"): 1}
    waits = meter.readings.times["hawser_wait_seconds"][("q",)]
    assert waits.seconds == pytest.approx(4.3)
    assert (waits.buckets[bucket_of(0.3)], waits.buckets[bucket_of(4.0)], sum(waits.buckets)) == (1, 1, 2)
    assert sum(meter.readings.times["hawser_claim_seconds"][()].buckets) == 1


def test_of_a_large_batch_some_stand_for_all():
    clock = ManualClock()
    meter = Meter(clock)
    total = 0
    for size in (SAMPLE, SAMPLE + 1, 397, 1000):
        meter.claimed(ClaimedBatch([a_job(clock)] * size, 0.001))
        total += size
        assert sum(meter.readings.times["hawser_wait_seconds"][("q",)].buckets) == total


@pytest.mark.parametrize(
    ("outcome", "attempt", "word"),
    [
        (Done(), 1, "done"),
        (Failed(Failure("x")), 1, "retry"),
        (Failed(Failure("x")), 3, "dead"),
        (Dead(Failure("x")), 1, "dead"),
        (Snoozed(1.0), 1, "snoozed"),
        (Released(), 1, "released"),
        (Cancelled(), 1, "cancelled"),
    ],
)
def test_an_outcome_is_counted_by_its_word(outcome: Outcome, attempt: int, word: str):
    meter = Meter()
    meter.settled(settled(a_job(ManualClock(), attempt=attempt), outcome))
    assert meter.readings.counts["hawser_settled_total"] == {("q", "t", word): 1}


@pytest.mark.parametrize("outcome", [Failed(Failure("x")), Snoozed(1.0), Released()])
def test_a_job_that_was_to_be_cancelled_is_counted_as_cancelled(outcome: Outcome):
    meter = Meter()
    meter.settled(settled(a_job(ManualClock()), outcome, asked=True))
    assert meter.readings.counts["hawser_settled_total"] == {("q", "t", "cancelled"): 1}


def test_what_was_refused_is_stale_and_what_never_ran_has_no_time():
    meter = Meter()
    job = a_job(ManualClock())
    meter.settled(settled(job, Done(), lost=True))
    meter.settled(settled(job, Released(), seconds=float("-inf")))
    assert meter.readings.counts["hawser_stale_settlements_total"] == {(): 1}
    assert sum(meter.readings.times["hawser_run_seconds"][("q", "t")].buckets) == 1
    meter.lost(2)
    meter.dropped(3)
    meter.reclaimed([Reclaimed("x", "t", "q", "w", 1, State.READY), Reclaimed("y", "t", "q", "w", 1, State.DEAD, renewed=False)])
    assert meter.readings.counts["hawser_lost_leases_total"] == {(): 2}
    assert meter.readings.counts["hawser_dropped_outcomes_total"] == {(): 3}
    assert meter.readings.counts["hawser_reclaimed_total"] == {("q", "t", "retry"): 1, ("q", "t", "dead"): 1}
    assert meter.readings.counts["hawser_reclaimed_unrenewed_total"] == {("q", "t"): 1}


def test_what_was_measured_is_taken_once_and_may_be_given_back():
    clock = ManualClock()
    meter = Meter(clock)
    meter.claimed(ClaimedBatch([a_job(clock, waited=0.3)] * 2, 0.001))
    taken = meter.take_measured()
    assert [(each.queue, each.task, each.kind, each.bucket, each.count) for each in taken] == [
        ("q", "t", "wait", bucket_of(0.3), 2)
    ]
    assert meter.take_measured() == []
    meter.give_back(taken)
    assert meter.take_measured() == taken


def test_names_that_never_end_fill_no_memory():
    readings = Readings()
    for n in range(MOST_LABELS + 50):
        readings.count(metric.ENQUEUED, (f"q{n}", "t"))
        readings.time(metric.WAIT_SECONDS, 0.1, (f"q{n}",))
    counts, times = readings.counts["hawser_enqueued_total"], readings.times["hawser_wait_seconds"]
    assert (len(counts), counts["other", "other"]) == (MOST_LABELS + 1, 50)
    assert (len(times), sum(times[("other",)].buckets)) == (MOST_LABELS + 1, 50)
    readings.count(metric.ENQUEUED, ("q0", "t"))
    assert counts["q0", "t"] == 2


def test_readings_of_processes_add_up_and_travel():
    clock = ManualClock()
    one, two = Meter(clock), Meter(clock)
    for meter in (one, two):
        meter.claimed(ClaimedBatch([a_job(clock, waited=1.0)], 0.001))
    total = Readings()
    for meter in (one, two):
        total.merge(msgspec.msgpack.decode(msgspec.msgpack.encode(meter.readings), type=Readings))
    assert total.counts["hawser_claimed_total"] == {("q", "t"): 2}
    assert total.times["hawser_wait_seconds"][("q",)].seconds == pytest.approx(2.0)
    assert one.readings.counts["hawser_claimed_total"] == {("q", "t"): 1}, "a sum leaves its parts alone"


def test_the_text_is_what_prometheus_reads():
    from prometheus_client.parser import text_string_to_metric_families

    meter = Meter()
    meter.settled(settled(a_job(ManualClock(), task='t"\n\\'), Done(), seconds=0.2))
    text = expose(meter.readings, [Gauge(metric.JOBS, 7, ("q", "ready"))]).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["hawser_settled"].samples[0].labels == {"queue": "q", "task": 't"\n\\', "outcome": "done"}
    assert families["hawser_jobs"].samples[0].value == 7
    buckets = {sample.labels["le"]: sample.value for sample in families["hawser_run_seconds"].samples if "le" in sample.labels}
    assert (buckets["0.1"], buckets["0.25"], buckets["+Inf"]) == (0, 1, 1)
    assert len(buckets) == len(BUCKETS) + 1


def test_every_metric_has_a_name_of_its_own_and_says_what_it_is():
    names = [each.name for each in METRICS]
    assert len(names) == len(set(names)) > 20
    for each in METRICS:
        assert each.name.startswith("hawser_")
        assert each.name.endswith("_total") is (each.kind == "counter")
        assert each.help.endswith(".")


def test_listeners_hear_all_even_when_one_of_them_raises(caplog):
    class Broken(Events):
        def claimed(self, batch):
            raise RuntimeError("no")

    meter = Meter()
    listeners = Listeners(Broken(), meter)
    listeners.claimed(ClaimedBatch([a_job(ManualClock())], 0.1))
    listeners.lost(1)
    listeners.dropped(1)
    listeners.reclaimed([])
    listeners.settled(settled(a_job(ManualClock()), Done()))
    assert meter.readings.counts["hawser_claimed_total"] == {("q", "t"): 1}
    assert "a listener failed" in caplog.text


def test_percentiles():
    assert percentile([0] * 18, 0.5) is None
    one = [0] * 18
    one[bucket_of(0.7)] = 100
    assert percentile(one, 0.5) == pytest.approx(0.5 * 2**0.5)
    assert percentile(one, 1.0) == pytest.approx(1.0)
    wide = [0] * 18
    wide[bucket_of(390.0)] = 100
    assert percentile(wide, 0.5) == pytest.approx((300 * 1800) ** 0.5), "half of the way by factors, and not by minutes"
    first = [100] + [0] * 17
    assert percentile(first, 0.5) == pytest.approx(0.0005)
    long = [0] * 17 + [1]
    assert percentile(long, 0.5) == BUCKETS[-1]
    mixed = [0] * 18
    mixed[0], mixed[9] = 99, 1
    assert (percentile(mixed, 0.5) or 1) < 0.001
    assert (percentile(mixed, 0.999) or 0) > 0.5
