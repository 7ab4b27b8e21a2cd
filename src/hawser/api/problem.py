"""What goes wrong, as `application/problem+json`: a status, words, and the fields at fault."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from hawser.errors import (
    BatchNotFound,
    ConfigError,
    ConfirmationNeeded,
    FieldError,
    IdConflict,
    InvalidJob,
    JobNotFound,
    QueueFull,
    RequestConflict,
    ScheduleNotFound,
    StoreError,
    WrongState,
)

_logger = logging.getLogger("hawser.api")

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"

FULL_RETRY_AFTER: Final = 5
"""Seconds after which a producer may try a full queue again."""

AWAY_RETRY_AFTER: Final = 1

_REPEAT: Final = "repeat the request: an enqueue with the same id or Idempotency-Key makes no second job"

_LONGEST_DETAIL: Final = 1_000
"""Characters of a message: it may quote what the caller sent."""


class FieldFault(msgspec.Struct, frozen=True):
    """One field of the request and what is wrong with it."""

    field: str
    message: str


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, after RFC 9457."""

    title: str
    status: int
    detail: str
    errors: list[FieldFault] = []


class Problem(Exception):
    """Ends a request with an error that the caller may read."""

    def __init__(
        self,
        status: int,
        detail: str,
        *errors: FieldError,
        headers: Mapping[str, str] | None = None,
        by: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors: Sequence[FieldError] = errors
        self.headers = dict(headers or {})
        self.by = by
        """The key that was refused before the handler ran, for the log."""

    def document(self) -> ProblemDocument:
        return ProblemDocument(
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            detail=printable(self.detail),
            errors=[FieldFault(printable(error.field), printable(error.message)) for error in self.errors],
        )


def bad(field: str, message: str) -> Problem:
    """A request with one field at fault."""
    return Problem(400, f"{field}: {message}", FieldError(field, message))


def problem_of(error: Exception) -> Problem:
    """The answer that an error stands for. An unexpected error is logged under a number, and answered without its text."""
    match error:
        case Problem():
            return error
        case InvalidJob():
            return Problem(400, str(error), *error.errors)
        case ConfigError():
            field, _, message = str(error).partition(": ")
            return Problem(400, str(error), FieldError(field, message))
        case QueueFull():
            return Problem(429, str(error), FieldError("queue", "it is full"), headers={"retry-after": f"{FULL_RETRY_AFTER}"})
        case JobNotFound() | ScheduleNotFound() | BatchNotFound():
            return Problem(404, str(error))
        case IdConflict() | RequestConflict() | WrongState():
            return _conflict(error)
        case StoreError():
            _logger.warning("the store is away: %s", error)
            text = f"the store is away, or its answer got lost; {_REPEAT}"
            return Problem(503, text, headers={"retry-after": f"{AWAY_RETRY_AFTER}"})
        case TimeoutError():
            text = f"the request took too long and was given up; what it asked for may or may not have happened; {_REPEAT}"
            return Problem(503, text, headers={"retry-after": f"{AWAY_RETRY_AFTER}"})
        case _:
            number = secrets.token_hex(4)
            _logger.error("request failed, error %s", number, exc_info=error)
            return Problem(500, f"this is a fault of Hawser; its log has it as error {number}")


def _conflict(error: IdConflict | RequestConflict | WrongState) -> Problem:
    match error:
        case IdConflict():
            return Problem(409, str(error), FieldError("id", "it belongs to another job"))
        case RequestConflict():
            return Problem(409, str(error), FieldError("Idempotency-Key", "it was sent before with another body"))
        case ConfirmationNeeded():
            return Problem(409, str(error), FieldError("confirm", "send true once you made sure"))
    return Problem(409, str(error))


def printable(text: str) -> str:
    """What a caller sent may stand in a message: no control characters, no lone surrogates, no end without one."""
    cut = text if len(text) <= _LONGEST_DETAIL else f"{text[:_LONGEST_DETAIL]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
