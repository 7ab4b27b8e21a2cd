"""Connections to the file, and what SQLite's error codes mean to us."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hawser.errors import HawserError, NotAStore, OutcomeUnknown, StoreError, StoreFull, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    from hawser.store import Durability


def connect(path: Path, durability: Durability, timeout: float, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection that begins its transactions by hand, waits for others, and syncs as the tier says."""
    con = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=256)
    # FULL syncs the log at every commit; NORMAL only at checkpoints, and a power cut takes what came after the last.
    con.execute("pragma synchronous = full" if durability == "durable" else "pragma synchronous = normal")
    if read_only:
        con.execute("pragma query_only = on")
    return con


def prepare_file(path: Path) -> None:
    """Create the file for its owner alone, when it is not there."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except FileNotFoundError as error:
        raise StoreUnavailable(f"the folder of {str(path)!r} does not exist; create it first") from error
    except IsADirectoryError as error:
        raise _is_a_folder(path) from error
    except PermissionError as error:
        raise _is_not_ours(path) from error
    except OSError as error:
        if error.errno == 30:
            raise StoreReadOnly(f"{str(path)!r} is on a read-only disk; choose another place or mount it for writing") from error
        raise StoreUnavailable(f"{str(path)!r} cannot be opened: {error.strerror}") from error


def lock_within(lock: int, seconds: float) -> None:
    """Take the lock between processes, but do not wait for ever for one that is frozen."""
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise StoreUnavailable(
                    f"another process has been making the schema for {seconds:g} s; see which one, and try again"
                ) from None
            time.sleep(0.02)
        else:
            return


def explain(error: sqlite3.Error, path: Path, *, committing: bool = False) -> HawserError:
    """Our error for one of SQLite's, with what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match code:
        case sqlite3.SQLITE_FULL:
            return StoreFull(f"the disk of {str(path)!r} is full; nothing was written: make room and try again")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return _is_not_ours(path)
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return NotAStore(f"{str(path)!r} is not a database, or damaged ({error}); name another file or restore a backup")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable(f"{str(path)!r} is held by another connection for too long; nothing was written: try again")
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN if path.is_dir():
            return _is_a_folder(path)
        case sqlite3.SQLITE_IOERR if committing:
            return OutcomeUnknown(f"the disk of {str(path)!r} failed during a commit ({error}); repeat with the same ids")
        case sqlite3.SQLITE_CANTOPEN if not os.access(path, os.R_OK | os.W_OK):
            return _is_not_ours(path)
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailable(f"{str(path)!r} cannot be read or written ({error}); nothing was written")
        case _:
            return StoreError(f"SQLite refused a statement on {str(path)!r}: {error}")


def _is_a_folder(path: Path) -> NotAStore:
    return NotAStore(f"{str(path)!r} is a folder; name a file in it, such as {str(path / 'jobs.db')!r}")


def _is_not_ours(path: Path) -> StoreReadOnly:
    return StoreReadOnly(f"{str(path)!r} may not be written; check the owner and mode of the file and its folder")
