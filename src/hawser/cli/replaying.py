"""Running a dead job again, with what its task asks for first."""

from __future__ import annotations

from hawser.cli import options
from hawser.cli.target import Opened
from hawser.errors import ConfirmationNeeded
from hawser.job import Job


def requeue(target: Opened, id: str, *, confirm: bool, reason: str | None) -> None:
    """As `Hawser.requeue`, in the words of the command line."""
    try:
        target.app.requeue(id, confirm=confirm, reason=reason, by=options.by())
    except ConfirmationNeeded:
        raise ConfirmationNeeded(f"cannot replay job {id}: {unconfirmed(target, target.app.get(id))}") from None


def unconfirmed(target: Opened, job: Job) -> str | None:
    """What a task that asks for a confirmation wants to hear first."""
    task = target.app.tasks.get(job.task)
    if not job.confirm_replay and (task is None or not task.options.confirm_replay):
        return None
    return f"task {job.task!r} asks for a confirmation; make sure that its effect has not happened yet, then add --confirm"
