"""The table of routes. The order is that of the OpenAPI document."""

from __future__ import annotations

from typing import Final

from hawser.api import (
    batches,
    breakers,
    bulk,
    control,
    counting,
    dead_letters,
    events,
    export,
    groups,
    job_events,
    jobs,
    limits,
    listing,
    metrics,
    named_events,
    output,
    overview,
    pull,
    schedules,
    selection,
    session,
    steps,
    system,
)
from hawser.api.batches import BatchesPage, BatchesQuery, BatchNewIn, BatchOpenedOut, BatchView
from hawser.api.bodies import (
    ActedOut,
    AuditQuery,
    BatchIn,
    BatchOut,
    ChangeIn,
    ConfirmIn,
    Controlled,
    DeadQuery,
    EnqueuedOut,
    FilterQuery,
    GroupsQuery,
    HistoryQuery,
    JobIn,
    JobQuery,
    PauseIn,
    QueueQuery,
    ReasonIn,
    ReasonQuery,
    Replayed,
    ReplayIn,
    WeightIn,
    WeightsOut,
    WhichQuery,
    WorkerReclaimed,
)
from hawser.api.breakers import BreakersOut
from hawser.api.bulk_bodies import BulkIn, ChangeAllIn, RetryAllIn
from hawser.api.counting import CountsOut, StripOut, StripQuery
from hawser.api.export import CSV, NDJSON, ExportQuery
from hawser.api.figures import HistoryOut, OverviewOut, OverviewQuery, TaskStatsOut, TaskStatsQuery, WhyOut, WindowQuery
from hawser.api.limits import LimitSetOut, LimitsOut, QueueLimitIn, TaskLimitIn
from hawser.api.named_events import EmittedOut, EventIn, EventView
from hawser.api.operation_view import Counted, OperationsOut, OperationView
from hawser.api.output import OutputOut, OutputQuery, StreamQuery
from hawser.api.pull_bodies import ClaimIn, ClaimsOut, ExtensionsIn, ExtensionsOut, SettlementsIn, SettlementsOut
from hawser.api.route import ACTS, ANY_ROLE, DEFINES, ENQUEUES, NO_KEY, READERS, WORKS, Route, Takes
from hawser.api.selection import SelectedIn, SelectedOut
from hawser.api.session import MeOut, SessionEnded, SessionOut
from hawser.api.settings import (
    PastOut,
    PolicyIn,
    Ran,
    Removed,
    ScheduleIn,
    SchedulesPage,
    SchedulesQuery,
    ScheduleView,
    TicksIn,
    TicksOut,
    TicksQuery,
)
from hawser.api.steps import RewindIn, StepsOut
from hawser.api.system import SystemOut
from hawser.api.views import (
    AuditOut,
    GroupsOut,
    Health,
    JobsPage,
    JobView,
    QueuesOut,
    QueueView,
    Ready,
    StatsOut,
    TasksOut,
    WorkersOut,
)
from hawser.telemetry.exposition import METRICS_MEDIA_TYPE as METRICS_TYPE

BULK: Final = {200: (Counted, OperationView), 202: OperationView}

ROUTES: Final = (
    Route("POST", "/jobs", jobs.enqueue, ENQUEUES, {201: EnqueuedOut, 200: EnqueuedOut}, Takes(JobIn, repeats=True)),
    Route(
        "POST",
        "/jobs/batch",
        jobs.enqueue_batch,
        ENQUEUES,
        {201: BatchOut, 200: BatchOut},
        Takes(BatchIn, large=True, repeats=True),
    ),
    Route("GET", "/jobs", listing.ls, READERS, {200: JobsPage}, Takes(query=FilterQuery)),
    Route("GET", "/jobs/counts", counting.counts, READERS, {200: CountsOut}, Takes(query=WhichQuery)),
    Route("GET", "/jobs/strip", counting.strip, READERS, {200: StripOut}, Takes(query=StripQuery)),
    Route("GET", "/jobs/export.csv", export.as_csv, READERS, {200: str}, Takes(query=ExportQuery), media_type=CSV),
    Route("GET", "/jobs/export.ndjson", export.as_ndjson, READERS, {200: str}, Takes(query=ExportQuery), media_type=NDJSON),
    Route("GET", "/jobs/{id}", jobs.show, READERS | ENQUEUES, {200: JobView}, Takes(query=JobQuery, waits=True)),
    Route("GET", "/jobs/{id}/events", job_events.job_events, READERS | ENQUEUES, {200: str}, media_type="text/event-stream"),
    Route("GET", "/jobs/{id}/output", output.show, READERS | ENQUEUES, {200: OutputOut}, Takes(query=OutputQuery)),
    Route(
        "GET",
        "/jobs/{id}/stream",
        output.stream,
        READERS | ENQUEUES,
        {200: str},
        Takes(query=StreamQuery),
        media_type="text/event-stream",
    ),
    Route("GET", "/jobs/{id}/steps", steps.show, READERS | ENQUEUES, {200: StepsOut}),
    Route("PATCH", "/jobs/{id}", jobs.change, ACTS, {200: ActedOut}, Takes(ChangeIn), effect="acts"),
    Route("POST", "/jobs/{id}/run-now", jobs.run_now, ACTS, {200: ActedOut}, Takes(ReasonIn), effect="acts"),
    Route("POST", "/jobs/{id}/dead-letter", jobs.dead_letter, ACTS, {200: ActedOut}, Takes(ReasonIn), effect="acts"),
    Route("POST", "/jobs/{id}/cancel", jobs.cancel, ACTS, {200: ActedOut}, Takes(ReasonIn), effect="acts"),
    Route("POST", "/jobs/{id}/rewind", steps.rewind, ACTS, {200: ActedOut}, Takes(RewindIn), effect="acts"),
    Route("POST", "/jobs/{id}/retry", jobs.retry, ACTS, {200: ActedOut}, Takes(ConfirmIn), effect="acts"),
    Route("POST", "/jobs/cancel", bulk.cancel, ACTS, BULK, Takes(BulkIn), effect="acts"),
    Route("POST", "/jobs/retry", bulk.retry, ACTS, BULK, Takes(RetryAllIn), effect="acts"),
    Route("POST", "/jobs/change", bulk.change, ACTS, BULK, Takes(ChangeAllIn), effect="acts"),
    Route("POST", "/jobs/selected", selection.act, ACTS, {200: SelectedOut}, Takes(SelectedIn), effect="acts"),
    Route(
        "POST", "/batches", batches.open_one, ENQUEUES, {201: BatchOpenedOut, 200: BatchOpenedOut}, Takes(BatchNewIn, large=True)
    ),
    Route("GET", "/batches", batches.ls, READERS, {200: BatchesPage}, Takes(query=BatchesQuery)),
    Route("GET", "/batches/{id}", batches.show, READERS | ENQUEUES, {200: BatchView}),
    Route("POST", "/batches/{id}/close", batches.close, ENQUEUES, {200: Controlled}, Takes(ReasonIn), effect="acts"),
    Route("POST", "/batches/{id}/cancel", batches.cancel, ACTS, {200: Controlled}, Takes(ReasonIn), effect="acts"),
    Route("POST", "/claims", pull.claim, WORKS, {200: ClaimsOut}, Takes(ClaimIn, waits=True)),
    Route("POST", "/settlements", pull.settle, WORKS, {200: SettlementsOut}, Takes(SettlementsIn, large=True)),
    Route("POST", "/extensions", pull.extend, WORKS, {200: ExtensionsOut}, Takes(ExtensionsIn, large=True)),
    Route("GET", "/dlq", listing.dead, READERS, {200: JobsPage}, Takes(query=DeadQuery)),
    Route("GET", "/dlq/groups", groups.groups, READERS, {200: GroupsOut}, Takes(query=GroupsQuery)),
    Route("POST", "/dlq/requeue", bulk.requeue, ACTS, BULK, Takes(BulkIn), effect="acts"),
    Route("POST", "/dlq/discard", bulk.discard, ACTS, BULK, Takes(BulkIn), effect="acts"),
    Route("GET", "/dlq/{id}", dead_letters.show, READERS, {200: JobView}),
    Route("POST", "/dlq/{id}/requeue", dead_letters.requeue, ACTS, {200: ActedOut}, Takes(ConfirmIn), effect="acts"),
    Route("POST", "/dlq/{id}/replay", dead_letters.replay, ACTS, {201: Replayed}, Takes(ReplayIn), effect="acts"),
    Route("DELETE", "/dlq/{id}", dead_letters.discard, ACTS, {200: ActedOut}, Takes(query=ReasonQuery), effect="acts"),
    Route("GET", "/operations", bulk.operations, READERS, {200: OperationsOut}),
    Route("GET", "/operations/{id}", bulk.operation, READERS, {200: OperationView}),
    Route("POST", "/operations/{id}/stop", bulk.stop_operation, ACTS, {200: OperationView}),
    Route("GET", "/queues", control.queues, READERS, {200: QueuesOut}),
    Route("GET", "/queues/{queue}", control.queue, READERS, {200: QueueView}),
    Route("GET", "/queues/{queue}/why", overview.why, READERS, {200: WhyOut}, Takes(query=WindowQuery)),
    Route("GET", "/queues/{queue}/groups", control.weights, READERS, {200: WeightsOut}),
    Route("PUT", "/queues/{queue}/groups/{group}", control.set_weight, ACTS, {200: Controlled}, Takes(WeightIn), effect="acts"),
    Route("PUT", "/queues/{queue}/policy", control.set_policy, DEFINES, {200: Controlled}, Takes(PolicyIn), effect="acts"),
    Route("POST", "/admin/queues/{queue}/pause", control.pause_queue, ACTS, {200: Controlled}, Takes(PauseIn), effect="acts"),
    Route("POST", "/admin/queues/{queue}/resume", control.resume_queue, ACTS, {200: Controlled}, Takes(ReasonIn), effect="acts"),
    Route("GET", "/admin/limits", limits.ls, READERS, {200: LimitsOut}),
    Route(
        "PUT", "/admin/limits/queues/{queue}", limits.set_of_queue, ACTS, {200: LimitSetOut}, Takes(QueueLimitIn), effect="acts"
    ),
    Route(
        "DELETE",
        "/admin/limits/queues/{queue}",
        limits.clear_of_queue,
        ACTS,
        {200: Controlled},
        Takes(query=ReasonQuery),
        effect="acts",
    ),
    Route("PUT", "/admin/limits/tasks/{task}", limits.set_of_task, ACTS, {200: LimitSetOut}, Takes(TaskLimitIn), effect="acts"),
    Route(
        "DELETE",
        "/admin/limits/tasks/{task}",
        limits.clear_of_task,
        ACTS,
        {200: Controlled},
        Takes(query=ReasonQuery),
        effect="acts",
    ),
    Route("GET", "/admin/breakers", breakers.ls, READERS, {200: BreakersOut}),
    Route("POST", "/admin/breakers/{task}/open", breakers.open_by_hand, ACTS, {200: Controlled}, Takes(ReasonIn), effect="acts"),
    Route(
        "POST", "/admin/breakers/{task}/close", breakers.close_by_hand, ACTS, {200: Controlled}, Takes(ReasonIn), effect="acts"
    ),
    Route("GET", "/tasks", control.tasks, READERS | ENQUEUES, {200: TasksOut}),
    Route("GET", "/tasks/stats", overview.task_stats, READERS, {200: TaskStatsOut}, Takes(query=TaskStatsQuery)),
    Route("POST", "/admin/job-types/{task}/pause", control.pause_task, ACTS, {200: Controlled}, Takes(PauseIn), effect="acts"),
    Route("POST", "/admin/job-types/{task}/resume", control.resume_task, ACTS, {200: Controlled}, Takes(ReasonIn), effect="acts"),
    Route("GET", "/schedules", schedules.ls, READERS, {200: SchedulesPage}, Takes(query=SchedulesQuery)),
    Route("GET", "/schedules/{schedule}", schedules.show, READERS, {200: ScheduleView}),
    Route("GET", "/schedules/{schedule}/ticks", schedules.ticks, READERS, {200: TicksOut}, Takes(query=TicksQuery)),
    Route("GET", "/schedules/{schedule}/past", schedules.past, READERS, {200: PastOut}, Takes(query=TicksQuery)),
    Route("POST", "/ticks", schedules.try_rule, READERS, {200: TicksOut}, Takes(TicksIn)),
    Route(
        "PUT",
        "/schedules/{schedule}",
        schedules.put,
        DEFINES,
        {201: ScheduleView, 200: ScheduleView},
        Takes(ScheduleIn),
        effect="acts",
    ),
    Route("DELETE", "/schedules/{schedule}", schedules.delete, DEFINES, {200: Removed}, Takes(query=ReasonQuery), effect="acts"),
    Route("POST", "/schedules/{schedule}/pause", schedules.pause, ACTS, {200: ScheduleView}, Takes(ReasonIn), effect="acts"),
    Route("POST", "/schedules/{schedule}/resume", schedules.resume, ACTS, {200: ScheduleView}, Takes(ReasonIn), effect="acts"),
    Route("POST", "/schedules/{schedule}/skip", schedules.skip, ACTS, {200: ScheduleView}, Takes(ReasonIn), effect="acts"),
    Route("POST", "/schedules/{schedule}/run", schedules.run, ACTS, {201: Ran}, Takes(ReasonIn), effect="acts"),
    Route("GET", "/workers", control.workers, READERS, {200: WorkersOut}),
    Route(
        "POST", "/workers/{worker}/reclaim", control.reclaim_worker, ACTS, {200: WorkerReclaimed}, Takes(ReasonIn), effect="acts"
    ),
    Route("GET", "/overview", overview.overview, READERS, {200: OverviewOut}, Takes(query=OverviewQuery)),
    Route("GET", "/stats", control.stats, READERS, {200: StatsOut}, Takes(query=QueueQuery)),
    Route("GET", "/history", metrics.history, READERS, {200: HistoryOut}, Takes(query=HistoryQuery)),
    Route("GET", "/metrics", metrics.metrics, READERS, {200: str}, media_type=METRICS_TYPE),
    Route("GET", "/audit", control.audit, ACTS, {200: AuditOut}, Takes(query=AuditQuery)),
    Route("GET", "/events", events.events, READERS, {200: str}, media_type="text/event-stream"),
    Route("POST", "/events/{name}", named_events.emit, ENQUEUES, {201: EmittedOut, 200: EmittedOut}, Takes(EventIn)),
    Route("GET", "/events/{name}", named_events.show, READERS, {200: EventView}),
    Route("GET", "/system", system.system, READERS, {200: SystemOut}),
    Route("GET", "/me", session.me, ANY_ROLE, {200: MeOut}),
    Route("POST", "/session", session.log_in, ANY_ROLE, {201: SessionOut}, effect="reads"),
    Route("DELETE", "/session", session.log_out, ANY_ROLE, {200: SessionEnded}, effect="reads"),
    Route("GET", "/openapi.json", system.openapi, ANY_ROLE, {200: dict}),
    Route("GET", "/healthz", system.healthz, NO_KEY, {200: Health}),
    Route("GET", "/readyz", system.readyz, NO_KEY, {200: Ready}),
)
