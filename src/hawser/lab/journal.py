"""What happened, written down where no fault reaches: the ground that the checker stands on.

One file, opened to append; each record is one write, so that a process killed in the middle of anything leaves whole records
behind. Times are the kernel's monotonic clock: one machine, one order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from hawser.errors import ConfigError


class What(StrEnum):
    """The kinds of records. Each call has one before it and one after; when the latter is missing, the outcome is unknown."""

    ENQUEUE = "enqueue"
    """About to enqueue."""
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """Not made, for another job holds its key."""
    REFUSED = "refused"
    """The store said no: nothing was written."""
    UNKNOWN = "unknown"
    """The store did not say."""
    CLAIMED = "claimed"
    START = "start"
    """A handler begins."""
    END = "end"
    """A handler returns or raises."""
    EFFECT = "effect"
    """The sink took an effect."""
    STALE_EFFECT = "stale-effect"
    """The sink refused an effect: a later lease had been there."""
    SETTLE = "settle"
    """About to write outcomes."""
    SETTLED = "settled"
    """The store took outcomes; the note says which."""
    REPEATED = "repeated"
    """The store had the outcome from this lease before."""
    STALE = "stale"
    """The store refused an outcome: the lease was gone."""
    FAULT = "fault"
    """Something was done to the system on purpose; the note says what."""


class JournalRun(NamedTuple):
    """A job, and the lease of one of its runs where there is one."""

    id: str
    lease: int = 0
    attempt: int = 0


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One thing that happened, to one job or to several at once."""

    at: int
    """Nanoseconds of the monotonic clock."""
    what: What
    by: str
    """Who wrote it: a process, by its number."""
    runs: tuple[JournalRun, ...] = ()
    note: str = ""


class Journal:
    """A file that many processes append to."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._by = str(os.getpid())

    def write(self, what: What, runs: Iterable[JournalRun] = (), note: str = "") -> None:
        record = Record(time.monotonic_ns(), what, self._by, tuple(runs), note)
        line = msgspec.json.encode(record) + b"\n"
        if os.write(self._fd, line) != len(line):
            raise ConfigError("the journal's disk is full: what happened from here on is not known; give it more room")

    def close(self) -> None:
        os.close(self._fd)


def read(path: Path) -> list[Record]:
    """All records, in the order of their times. A torn line is an error: then nothing can be proven."""
    decoder = msgspec.json.Decoder(Record)
    try:
        records = [decoder.decode(line) for line in path.read_bytes().splitlines()]
    except msgspec.DecodeError as error:
        raise ConfigError(f"the journal {path} has a torn record: {error}") from None
    return sorted(records, key=lambda record: record.at)


class Tail:
    """Reads on in a journal that is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def read(self) -> list[Record]:
        """What has come since the last look, as far as it is whole."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [msgspec.json.decode(line, type=Record) for line in whole.splitlines()]
