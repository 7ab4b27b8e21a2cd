"""Every metric that Hawser exposes: its name, kind, labels and meaning. Rules, dashboard and documents are checked against it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class Metric(NamedTuple):
    """What is exposed under one name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


# Counted in worker processes.

CLAIMED: Final = Metric("hawser_claimed_total", "counter", ("queue", "task"), "Jobs claimed.")
SETTLED: Final = Metric(
    "hawser_settled_total",
    "counter",
    ("queue", "task", "outcome"),
    "Runs settled: done, retry, dead, snoozed, released or cancelled.",
)
STALE: Final = Metric("hawser_stale_settlements_total", "counter", (), "Outcomes that the store refused: the lease was gone.")
DROPPED: Final = Metric("hawser_dropped_outcomes_total", "counter", (), "Outcomes given up while the store was away.")
LOST: Final = Metric("hawser_lost_leases_total", "counter", (), "Runs ended because their lease was gone.")
RECLAIMED: Final = Metric(
    "hawser_reclaimed_total",
    "counter",
    ("queue", "task", "outcome"),
    "Runs taken back whose lease had run out: retry, dead or cancelled.",
)
UNRENEWED: Final = Metric(
    "hawser_reclaimed_unrenewed_total",
    "counter",
    ("queue", "task"),
    "Of those, runs whose lease was never renewed: it is not known whether they began.",
)
EXTENDED: Final = Metric("hawser_extended_total", "counter", (), "Leases extended.")
CLAIM_SECONDS: Final = Metric("hawser_claim_seconds", "histogram", (), "How long claims that found jobs took.")
WAIT_SECONDS: Final = Metric("hawser_wait_seconds", "histogram", ("queue",), "How long jobs were due before they were claimed.")
RUN_SECONDS: Final = Metric("hawser_run_seconds", "histogram", ("queue", "task"), "How long attempts took.")
RESTARTS: Final = Metric("hawser_worker_restarts_total", "counter", (), "Processes of this worker that died and were replaced.")
PROCESSES: Final = Metric("hawser_worker_processes", "gauge", (), "Processes of this worker that are ready.")
RUNNING: Final = Metric("hawser_worker_running", "gauge", (), "Jobs that run in this worker.")
SLOTS: Final = Metric("hawser_worker_slots", "gauge", (), "Jobs that could run in this worker.")

LOG_LINES: Final = Metric(
    "hawser_dropped_log_lines_total", "counter", (), "Log lines that were dropped because nothing read standard error."
)

# Counted in servers.

ENQUEUE_SECONDS: Final = Metric("hawser_enqueue_seconds", "histogram", (), "How long the store took to add jobs.")
REQUESTS: Final = Metric("hawser_http_requests_total", "counter", ("method", "route", "status"), "Requests answered.")
REQUEST_SECONDS: Final = Metric("hawser_http_request_seconds", "histogram", ("method", "route"), "How long answers took.")

# Asked of the store by servers; the first by workers, too.

UP: Final = Metric("hawser_store_up", "gauge", (), "1 when the store answers and takes writes.")
JOBS: Final = Metric(
    "hawser_jobs", "gauge", ("queue", "state"), "Jobs: ready, scheduled, retrying, held, running, done, dead, cancelled."
)
WAITING: Final = Metric("hawser_waiting_jobs", "gauge", ("queue", "task", "priority"), "Jobs that wait, due or not.")
OLDEST: Final = Metric(
    "hawser_oldest_due_seconds", "gauge", ("queue", "priority"), "How long the job that is due for longest has been due."
)
EVENTS: Final = Metric(
    "hawser_events_per_second", "gauge", ("queue", "event"), "Rates over five minutes, of all producers and workers together."
)
ENQUEUED: Final = Metric(
    "hawser_enqueued_total", "counter", ("queue", "task"), "Jobs enqueued by all producers, since this server started."
)
DEDUPLICATED: Final = Metric(
    "hawser_deduplicated_total", "counter", ("queue", "task"), "Jobs not added, because an earlier one held their key."
)
DEAD: Final = Metric("hawser_dead_total", "counter", ("queue", "task"), "Jobs that died, since this server started.")
STEPS: Final = Metric("hawser_steps_total", "counter", ("queue", "task"), "Steps recorded, sleeps and waits among them.")
EVENTS_CAME: Final = Metric("hawser_events_came_total", "counter", ("queue", "task"), "Waits whose event came in time.")
EVENTS_LATE: Final = Metric("hawser_events_late_total", "counter", ("queue", "task"), "Waits whose time was over first.")
EMITTED: Final = Metric("hawser_events_emitted_total", "counter", (), "Events that came from anywhere, the first of each name.")
WOKEN: Final = Metric(
    "hawser_woken_total",
    "counter",
    ("queue", "task"),
    "Jobs that waited for an event and are ready again, since it came or its time is over.",
)
AWAITING: Final = Metric("hawser_awaiting_jobs", "gauge", (), "Waits for events that last, counted up to 10,000.")
WORKERS: Final = Metric("hawser_workers", "gauge", (), "Worker processes heard of within 30 seconds.")
PAUSED: Final = Metric("hawser_paused", "gauge", ("kind", "name"), "1 for each queue and task that is paused.")
LIMIT_RUNNING: Final = Metric(
    "hawser_limit_running", "gauge", ("kind", "name"), "Jobs that run, of each queue and task with a limit."
)
LIMIT_SHUT_GROUPS: Final = Metric(
    "hawser_limit_shut_groups", "gauge", ("task",), "Groups that a limit per group keeps back, counted up to 10,000."
)
LIMIT_SHUT: Final = Metric("hawser_limit_shut", "gauge", ("kind", "name"), "1 for each limit that keeps jobs back, else 0.")
BREAKER_OPEN: Final = Metric("hawser_breaker_open", "gauge", ("task",), "1 while the breaker of a task is open, else 0.")
FAILOVERS: Final = Metric(
    "hawser_store_failovers", "gauge", (), "How often a replica took the place of the store's server, as far as it can tell."
)
BATCHES: Final = Metric("hawser_batches", "gauge", ("state",), "Batches that have not ended: open, running.")

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
