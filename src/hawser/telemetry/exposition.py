"""Readings and gauges in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from hawser.errors import MissingExtra, install
from hawser.store.rollup import BUCKETS
from hawser.telemetry.meter import Readings
from hawser.telemetry.metric import METRICS, Metric

METRICS_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Gauge(NamedTuple):
    """A figure that was looked up."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


def expose(readings: Readings, gauges: Iterable[Gauge] = ()) -> bytes:
    """The text that a scrape gets. `MissingExtra` when prometheus-client is not installed."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(f"metrics: they need the package 'prometheus-client'; {install('metrics')}") from error
    registry = CollectorRegistry()
    registry.register(_Once(readings, list(gauges)))
    return generate_latest(registry)


class _Once:
    """Gives what was read to one registry."""

    def __init__(self, readings: Readings, gauges: list[Gauge]) -> None:
        self._readings = readings
        self._gauges = gauges

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import (  # noqa: PLC0415  # an extra
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        for metric in METRICS:
            match metric.kind:
                case "counter" if metric.name in self._readings.counts:
                    counter = CounterMetricFamily(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
                    for labels, value in self._readings.counts[metric.name].items():
                        counter.add_metric(labels, value)
                    yield counter
                case "histogram" if metric.name in self._readings.times:
                    histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
                    for labels, times in self._readings.times[metric.name].items():
                        histogram.add_metric(labels, _cumulated(times.buckets), times.seconds)
                    yield histogram
                case "gauge":
                    found = [gauge for gauge in self._gauges if gauge.metric is metric]
                    if found:
                        gauges = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
                        for gauge in found:
                            gauges.add_metric(gauge.labels, gauge.value)
                        yield gauges
                case _:
                    pass


def _cumulated(buckets: list[int]) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
    total = 0
    cumulated = []
    for bound, count in zip(bounds, buckets, strict=True):
        total += count
        cumulated.append((bound, float(total)))
    return cumulated
