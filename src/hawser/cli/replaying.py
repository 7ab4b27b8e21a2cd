"""Running a dead job again, with what its task asks for first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hawser.cli import options
from hawser.cli.opened_app import Opened
from hawser.errors import ConfirmationNeeded
from hawser.handle import Handle
from hawser.job import Job
from hawser.task import asks_for_confirmation


def requeue(target: Opened, id: str, *, confirm: bool, reason: str | None) -> None:
    """As `Hawser.requeue`, in the words of the command line."""
    with _in_our_words(target, id):
        target.app.requeue(id, confirm=confirm, reason=reason, by=options.by())


def rewind(target: Opened, id: str, to: str | None, *, confirm: bool, reason: str | None) -> None:
    """As `Hawser.rewind`, in the words of the command line."""
    with _in_our_words(target, id, "rewind"):
        target.app.rewind(id, to=to, confirm=confirm, reason=reason, by=options.by())


def replay(target: Opened, id: str, payload: dict[str, Any], *, confirm: bool, reason: str | None) -> Handle[Any]:
    """As `Hawser.replay`, in the words of the command line."""
    with _in_our_words(target, id):
        return target.app.replay(id, payload, confirm=confirm, reason=reason, by=options.by())


@contextmanager
def _in_our_words(target: Opened, id: str, what: str = "replay") -> Iterator[None]:
    try:
        yield
    except ConfirmationNeeded:
        raise ConfirmationNeeded(f"cannot {what} job {id}: {unconfirmed(target, target.app.get(id))}") from None


def unconfirmed(target: Opened, job: Job) -> str | None:
    """What a task that asks for a confirmation wants to hear first."""
    if not asks_for_confirmation(target.app.tasks, job):
        return None
    return f"task {job.task!r} asks for a confirmation; make sure that its effect has not happened yet, then add --confirm"
