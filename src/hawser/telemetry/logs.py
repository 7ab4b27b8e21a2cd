"""Log lines: plain or JSON, with the job's id, task and attempt where a line is about one, and the caller's own fields."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, cast

import msgspec

from hawser.job import Claimed
from hawser.telemetry.lines import LineHandler

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}
"""What every record has; the rest came as `extra`. But for `color_message`: uvicorn's twin of its message, for terminals."""

_LINE_FIELDS: Final = ("time", "level", "logger", "message", "process", "traceback")
"""What a JSON line has of its own. An `extra` with such a name gets a `_` in front."""


class AtWork(Protocol):
    """What runs a handler, as far as log lines need it."""

    job: Claimed


CURRENT: Final[ContextVar[AtWork | None]] = ContextVar("hawser_run", default=None)
"""On whose behalf code runs: tasks and callbacks that a handler starts inherit it. None for the worker's own code."""


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker logs."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["plain", "json"] = "plain"


class PlainFormatter(logging.Formatter):
    """`12:00:01 WARNING hawser.worker: job failed … job_id=… task=…`; control characters are escaped, so a line is a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_told(value)}" for name, value in _fields(record).items())
        when = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        line = f"{when} {record.levelname:<7} {record.name}: {_escaped(record.getMessage() + fields)}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            **{(f"_{name}" if name in _LINE_FIELDS else name): _told(value) for name, value in _fields(record).items()},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure(options: LogOptions) -> None:
    """Send log lines to standard error. Logging never waits for the reader; what is not read is dropped and counted."""
    try:
        handler: logging.Handler = LineHandler(sys.stderr.fileno())
    except OSError:
        # Another program's stream, such as a test's, that is no file.
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if options.format == "json" else PlainFormatter())
    logging.basicConfig(level=options.level.upper(), handlers=[handler], force=True)


def say(line: str) -> None:
    """A line to standard error that is not a record, on the same way."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LineHandler):
            handler.put(line)
            return
    sys.stderr.write(f"{line}\n")


def dropped_lines() -> int:
    """Lines of this process that were lost, since its start."""
    return sum(handler.dropped for handler in logging.getLogger().handlers if isinstance(handler, LineHandler))


def flush() -> None:
    """Wait a moment until all lines are written: before an end at which Python does not do so."""
    for handler in logging.getLogger().handlers:
        handler.flush()


@contextmanager
def on_behalf_of(run: AtWork) -> Iterator[None]:
    """Lines that are logged within it are about the job of this run."""
    token = CURRENT.set(run)
    try:
        yield
    finally:
        CURRENT.reset(token)


def configured() -> LogOptions | None:
    """How `configure` was called in this process; None when it was not."""
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler.formatter, PlainFormatter | JsonFormatter):
            return LogOptions(
                level=cast("Any", logging.getLevelName(root.level).lower()),
                format="json" if isinstance(handler.formatter, JsonFormatter) else "plain",
            )
    return None


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The job, if the line is about one, and what the caller gave as `extra`."""
    about: dict[str, object] = {}
    if (run := CURRENT.get()) is not None:
        about = {"job_id": run.job.id, "task": run.job.task, "attempt": run.job.attempt}
    extra = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    return {**about, **extra}


def _told(value: object) -> object:
    """A value that JSON can carry; what it cannot is told as Python shows it."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)
    except Exception:  # noqa: BLE001  # an object's repr may raise anything, and a log line must not
        return f"({type(value).__qualname__})"


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
