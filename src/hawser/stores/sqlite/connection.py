"""Connections to the file, and what SQLite's error codes mean to us."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hawser.errors import HawserError, NotAStore, OutcomeUnknown, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from hawser.stores.sqlite.turn import no_locks

if TYPE_CHECKING:
    from hawser.store import Durability


_LOCKS_REFUSED: Final = {
    sqlite3.SQLITE_IOERR_LOCK,
    sqlite3.SQLITE_IOERR_RDLOCK,
    sqlite3.SQLITE_IOERR_UNLOCK,
    sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK,
    sqlite3.SQLITE_IOERR_SHMLOCK,
}


class OwnedConnection(sqlite3.Connection):
    """A connection that ends with its store: an app need not be closed, and Python 3.13 warns of connections that are not."""

    def __del__(self) -> None:
        with suppress(sqlite3.Error):
            self.close()


def connect(path: Path, durability: Durability, timeout: float, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection that begins its transactions by hand, waits for others, and syncs as the tier says."""
    con = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=256, factory=OwnedConnection
    )
    # FULL syncs the log at every commit; NORMAL only at checkpoints, and a power cut takes what came after the last.
    con.execute("pragma synchronous = full" if durability == "durable" else "pragma synchronous = normal")
    if read_only:
        con.execute("pragma query_only = on")
    return con


def prepare_file(path: Path) -> None:
    """Create the file for its owner alone, when it is not there.

    A file that is there is not opened: closing it again would drop the locks that SQLite holds on it for other connections of
    this process.
    """
    try:
        if not path.exists():
            # The real path, as with O_EXCL the path of a link that points nowhere yet counts as taken.
            os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    except FileNotFoundError as error:
        raise StoreUnavailable(f"the folder of {str(path)!r} does not exist; create it first") from error
    except PermissionError as error:
        raise _is_not_ours(path) from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise StoreReadOnly(f"{str(path)!r} is on a read-only disk; choose another place or mount it for writing") from error
        raise StoreUnavailable(f"{str(path)!r} cannot be opened: {error.strerror}") from error
    if path.is_dir():
        raise _is_a_folder(path)
    if not os.access(path, os.R_OK | os.W_OK):
        raise _is_not_ours(path)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection keeps us from it."""
    return bool(error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY)


def explain(error: sqlite3.Error, path: Path, *, committing: bool = False) -> HawserError:
    """Our error for one of SQLite's, with what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if getattr(error, "sqlite_errorcode", 0) in _LOCKS_REFUSED:
        return no_locks(path, error)
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
