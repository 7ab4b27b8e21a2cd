"""What a PostgreSQL server that was killed leaves in the kernel: a start in the same folder takes it over, else we remove it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_IPC_RMID: Final = 0
SHARED_MEMORY: Final = "/dev/shm/PostgreSQL."  # noqa: S108  # the server's own choice


class Remains:
    """Shared memory that outlives a kill -9."""

    def __init__(self) -> None:
        self._files: set[Path] = set()
        self._segments: set[int] = set()

    def note(self, data: Path, pids: Iterable[int]) -> None:
        """Remember what these processes share, while they still live."""
        with suppress(OSError, IndexError, ValueError):
            self._segments.add(int((data / "postmaster.pid").read_text().splitlines()[6].split()[1]))
        for pid in pids:
            with suppress(OSError):
                maps = Path(f"/proc/{pid}/maps").read_text()
                self._files |= {Path(line.split()[5]) for line in maps.splitlines() if SHARED_MEMORY in line}

    def remove(self) -> None:
        """Only when no server has taken them over; a file or segment that is gone already is no news."""
        for path in self._files:
            path.unlink(missing_ok=True)
        for segment in self._segments:
            ctypes.CDLL(None).shmctl(segment, _IPC_RMID, None)
        self._files, self._segments = set(), set()
