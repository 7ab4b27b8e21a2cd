"""The table of routes. The order is that of the OpenAPI document."""

from __future__ import annotations

from typing import Final

from hawser.api import (
    bulk,
    control,
    dead_letters,
    events,
    export,
    groups,
    jobs,
    metrics,
    overview,
    pull,
    schedules,
    selection,
    session,
    system,
)
from hawser.api.bodies import (
    Acted,
    AuditQuery,
    BatchIn,
    BatchOut,
    BulkIn,
    ConfirmIn,
    Controlled,
    DeadQuery,
    Enqueued,
    FilterQuery,
    GroupsQuery,
    HistoryQuery,
    JobIn,
    LimitsIn,
    PauseIn,
    QueueQuery,
    ReasonIn,
    ReasonQuery,
    Replayed,
    ReplayIn,
)
from hawser.api.export import CSV, NDJSON, ExportQuery
from hawser.api.figures import OverviewOut, TaskStatsOut, TaskStatsQuery, WhyOut, WindowQuery
from hawser.api.operation_view import Counted, OperationsOut, OperationView
from hawser.api.pull_bodies import ClaimIn, ClaimsOut, ExtensionsIn, ExtensionsOut, SettlementsIn, SettlementsOut
from hawser.api.route import ACTS, ANYBODY, DEFINES, ENQUEUES, LOOKS, OPEN, WORKS, Route
from hawser.api.selection import SelectedIn, SelectedOut
from hawser.api.session import MeOut, SessionEnded, SessionOut
from hawser.api.settings import (
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
from hawser.api.views import (
    AuditOut,
    GroupsOut,
    Health,
    HistoryOut,
    JobsPage,
    JobView,
    QueuesOut,
    QueueView,
    Ready,
    StatsOut,
    TasksOut,
    WorkersOut,
)
from hawser.telemetry.exposition import MEDIA_TYPE as METRICS_TYPE

BULK: Final = {200: (Counted, OperationView), 202: OperationView}

ROUTES: Final = (
    Route("POST", "/jobs", jobs.enqueue, ENQUEUES, {201: Enqueued, 200: Enqueued}, body=JobIn, repeats=True),
    Route(
        "POST",
        "/jobs/batch",
        jobs.enqueue_batch,
        ENQUEUES,
        {201: BatchOut, 200: BatchOut},
        body=BatchIn,
        large=True,
        repeats=True,
    ),
    Route("GET", "/jobs", jobs.ls, LOOKS, {200: JobsPage}, query=FilterQuery),
    Route("GET", "/jobs/export.csv", export.as_csv, LOOKS, {200: str}, query=ExportQuery, media_type=CSV),
    Route("GET", "/jobs/export.ndjson", export.as_ndjson, LOOKS, {200: str}, query=ExportQuery, media_type=NDJSON),
    Route("GET", "/jobs/{id}", jobs.show, LOOKS | ENQUEUES, {200: JobView}),
    Route("POST", "/jobs/{id}/cancel", jobs.cancel, ACTS, {200: Acted}, body=ReasonIn, acts=True),
    Route("POST", "/jobs/{id}/retry", jobs.retry, ACTS, {200: Acted}, body=ConfirmIn, acts=True),
    Route("POST", "/jobs/cancel", bulk.cancel, ACTS, BULK, body=BulkIn, acts=True),
    Route("POST", "/jobs/selected", selection.act, ACTS, {200: SelectedOut}, body=SelectedIn, acts=True),
    Route("POST", "/claims", pull.claim, WORKS, {200: ClaimsOut}, body=ClaimIn, waits=True),
    Route("POST", "/settlements", pull.settle, WORKS, {200: SettlementsOut}, body=SettlementsIn, large=True),
    Route("POST", "/extensions", pull.extend, WORKS, {200: ExtensionsOut}, body=ExtensionsIn, large=True),
    Route("GET", "/dlq", dead_letters.ls, LOOKS, {200: JobsPage}, query=DeadQuery),
    Route("GET", "/dlq/groups", groups.groups, LOOKS, {200: GroupsOut}, query=GroupsQuery),
    Route("POST", "/dlq/requeue", bulk.requeue, ACTS, BULK, body=BulkIn, acts=True),
    Route("POST", "/dlq/discard", bulk.discard, ACTS, BULK, body=BulkIn, acts=True),
    Route("GET", "/dlq/{id}", dead_letters.show, LOOKS, {200: JobView}),
    Route("POST", "/dlq/{id}/requeue", dead_letters.requeue, ACTS, {200: Acted}, body=ConfirmIn, acts=True),
    Route("POST", "/dlq/{id}/replay", dead_letters.replay, ACTS, {201: Replayed}, body=ReplayIn, acts=True),
    Route("DELETE", "/dlq/{id}", dead_letters.discard, ACTS, {200: Acted}, query=ReasonQuery, acts=True),
    Route("GET", "/operations", bulk.operations, LOOKS, {200: OperationsOut}),
    Route("GET", "/operations/{id}", bulk.operation, LOOKS, {200: OperationView}),
    Route("POST", "/operations/{id}/stop", bulk.stop_operation, ACTS, {200: OperationView}),
    Route("GET", "/queues", control.queues, LOOKS, {200: QueuesOut}),
    Route("GET", "/queues/{queue}", control.queue, LOOKS, {200: QueueView}),
    Route("GET", "/queues/{queue}/why", overview.why, LOOKS, {200: WhyOut}, query=WindowQuery),
    Route("PUT", "/queues/{queue}/limits", control.set_limits, ACTS, {200: Controlled}, body=LimitsIn, acts=True),
    Route("PUT", "/queues/{queue}/policy", control.set_policy, DEFINES, {200: Controlled}, body=PolicyIn, acts=True),
    Route("POST", "/admin/queues/{queue}/pause", control.pause_queue, ACTS, {200: Controlled}, body=PauseIn, acts=True),
    Route("POST", "/admin/queues/{queue}/resume", control.resume_queue, ACTS, {200: Controlled}, body=ReasonIn, acts=True),
    Route("GET", "/tasks", control.tasks, LOOKS | ENQUEUES, {200: TasksOut}),
    Route("GET", "/tasks/stats", overview.task_stats, LOOKS, {200: TaskStatsOut}, query=TaskStatsQuery),
    Route("POST", "/admin/job-types/{task}/pause", control.pause_task, ACTS, {200: Controlled}, body=PauseIn, acts=True),
    Route("POST", "/admin/job-types/{task}/resume", control.resume_task, ACTS, {200: Controlled}, body=ReasonIn, acts=True),
    Route("GET", "/schedules", schedules.ls, LOOKS, {200: SchedulesPage}, query=SchedulesQuery),
    Route("GET", "/schedules/{schedule}", schedules.show, LOOKS, {200: ScheduleView}),
    Route("GET", "/schedules/{schedule}/ticks", schedules.ticks, LOOKS, {200: TicksOut}, query=TicksQuery),
    Route("POST", "/ticks", schedules.try_rule, LOOKS, {200: TicksOut}, body=TicksIn),
    Route(
        "PUT", "/schedules/{schedule}", schedules.put, DEFINES, {201: ScheduleView, 200: ScheduleView}, body=ScheduleIn, acts=True
    ),
    Route("DELETE", "/schedules/{schedule}", schedules.delete, DEFINES, {200: Removed}, query=ReasonQuery, acts=True),
    Route("POST", "/schedules/{schedule}/pause", schedules.pause, ACTS, {200: ScheduleView}, body=ReasonIn, acts=True),
    Route("POST", "/schedules/{schedule}/resume", schedules.resume, ACTS, {200: ScheduleView}, body=ReasonIn, acts=True),
    Route("POST", "/schedules/{schedule}/skip", schedules.skip, ACTS, {200: ScheduleView}, body=ReasonIn, acts=True),
    Route("POST", "/schedules/{schedule}/run", schedules.run, ACTS, {201: Ran}, body=ReasonIn, acts=True),
    Route("GET", "/workers", control.workers, LOOKS, {200: WorkersOut}),
    Route("GET", "/overview", overview.overview, LOOKS, {200: OverviewOut}, query=WindowQuery),
    Route("GET", "/stats", control.stats, LOOKS, {200: StatsOut}, query=QueueQuery),
    Route("GET", "/history", metrics.history, LOOKS, {200: HistoryOut}, query=HistoryQuery),
    Route("GET", "/metrics", metrics.metrics, LOOKS, {200: str}, media_type=METRICS_TYPE),
    Route("GET", "/audit", control.audit, ACTS, {200: AuditOut}, query=AuditQuery),
    Route("GET", "/events", events.events, LOOKS, {200: str}, media_type="text/event-stream"),
    Route("GET", "/me", session.me, ANYBODY, {200: MeOut}),
    Route("POST", "/session", session.log_in, ANYBODY, {201: SessionOut}, reads=True),
    Route("DELETE", "/session", session.log_out, ANYBODY, {200: SessionEnded}, reads=True),
    Route("GET", "/openapi.json", system.openapi, ANYBODY, {200: dict}),
    Route("GET", "/healthz", system.healthz, OPEN, {200: Health}),
    Route("GET", "/readyz", system.readyz, OPEN, {200: Ready}),
)
