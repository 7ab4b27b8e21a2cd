"""Log lines: plain or JSON, with the job's id, task and attempt where a line is about one."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

FIELDS: Final = ("job_id", "task", "attempt", "worker")


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker logs."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["plain", "json"] = "plain"


class PlainFormatter(logging.Formatter):
    """`12:00:01 WARNING hawser.worker: job failed … job_id=… task=…`; control characters are escaped, so a line is a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
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
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure(options: LogOptions) -> None:
    """Send log lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if options.format == "json" else PlainFormatter())
    logging.basicConfig(level=options.level.upper(), handlers=[handler], force=True)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
