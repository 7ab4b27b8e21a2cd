"""A bulk operation as the API shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from hawser.api.bodies import Out
from hawser.store import BulkOperation
from hawser.store.bulk import StopRule


class Counted(Out):
    """What a dry run saw; `count` is a lower bound when `exact` is false."""

    count: int
    exact: bool
    token: str


class OperationView(Out):
    """An action on many jobs. `skipped`: what the state of a job, a key or a missing confirmation forbade."""

    id: str
    action: str
    state: Literal["running", "interrupted", "done", "stopped", "failed"]
    """`interrupted`: its server ended or does not answer; another one goes on with it."""
    done: int
    skipped: int
    filter: dict[str, Any]
    rate: float
    by: str
    reason: str | None
    started_at: datetime
    ended_at: datetime | None
    stop_if: StopRule | None
    error: str | None
    """Why it failed, or stopped by itself."""


def operation_view(operation: BulkOperation) -> OperationView:
    plan = operation.plan
    return OperationView(
        id=operation.id,
        action=plan.action,
        state="interrupted" if operation.interrupted else operation.state.value,
        done=operation.done,
        skipped=operation.skipped,
        filter=plan.filter.told(),
        rate=plan.rate,
        by=plan.by,
        reason=plan.reason,
        started_at=operation.started_at,
        ended_at=operation.ended_at,
        stop_if=plan.stop_if,
        error=operation.error,
    )


class OperationsOut(Out):
    """Newest first."""

    operations: list[OperationView]
