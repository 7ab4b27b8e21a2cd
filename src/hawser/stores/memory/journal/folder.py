"""The folder of a journal: its files, and the process that owns it."""

from __future__ import annotations

import fcntl
import os
import re
import threading
from pathlib import Path
from typing import Final

from hawser.errors import StoreUnavailable

_OWNED: Final[set[str]] = set()
_OWNED_LOCK: Final = threading.Lock()
"""The journals that this process has open: the lock of the operating system is the process's, and would let it in twice."""

_FILE_NAME: Final = re.compile(r"(log|image)-(\d{12})")


class Folder:
    """Numbered logs and images. An image stands for its own log and all before it."""

    def __init__(self, path: Path) -> None:
        # The working directory may change while the journal is open.
        self.path = path.resolve()
        self._lock: int | None = None

    def take(self) -> None:
        """Become the owner, or refuse: two processes must not write one journal."""
        with _OWNED_LOCK:
            if str(self.path) in _OWNED:
                raise self._in_use("this process")
            self._take()
            _OWNED.add(str(self.path))

    def _take(self) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreUnavailable(
                f"the journal {str(self.path)!r} cannot be used: {error.strerror}; name a folder that this process may write"
            ) from error
        try:
            # A lock of the process, not of the open file: a forked child that lives on does not keep it.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise self._in_use("another process") from error
        self._lock = lock

    def _in_use(self, where: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the journal {str(self.path)!r} is open in {where} already; close it there, or name another folder"
        )

    def let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            with _OWNED_LOCK:
                _OWNED.discard(str(self.path))

    def cut(self, number: int, size: int) -> None:
        """Remove the end of a log that a crash has cut off."""
        path = self.log(number)
        if path.stat().st_size > size:
            handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.ftruncate(handle, size)
                os.fsync(handle)
            finally:
                os.close(handle)

    def log(self, number: int) -> Path:
        return self.path / f"log-{number:012d}"

    def image(self, number: int) -> Path:
        return self.path / f"image-{number:012d}"

    def numbers(self, kind: str) -> list[int]:
        """The numbers of the logs, or of the images, in order."""
        found = (_FILE_NAME.fullmatch(name) for name in os.listdir(self.path))
        return sorted(int(match[2]) for match in found if match is not None and match[1] == kind)

    def newest_image(self) -> int:
        """0 when it is missing."""
        return max(self.numbers("image"), default=0)

    def logs_after(self, image: int) -> list[int]:
        """The logs that go on from an image; refuses when one is missing."""
        numbers = [number for number in self.numbers("log") if number > image]
        if numbers != list(range(image + 1, image + 1 + len(numbers))):
            missing = next(number for number in range(image + 1, max(numbers)) if number not in numbers)
            raise StoreUnavailable(
                f"the journal {str(self.path)!r} has lost the file {self.log(missing).name}; restore the folder from a copy"
            )
        return numbers

    def remove_covered(self) -> None:
        """Remove what the newest image stands for. A crash in between leaves files that the next call removes."""
        newest = self.newest_image()
        for number in self.numbers("image"):
            if number < newest:
                self.image(number).unlink(missing_ok=True)
        for number in self.numbers("log"):
            if number <= newest:
                self.log(number).unlink(missing_ok=True)

    def sync(self) -> None:
        """Make names that were added or removed durable."""
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def put_image(self, number: int, data: bytes) -> None:
        """Write an image whole or not at all."""
        # Another process may be making the same one, left over from an owner that was killed.
        unfinished = self.path / f"unfinished-{number:012d}-{os.getpid()}"
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(self.image(number))
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        self.sync()

    def remove_unfinished(self) -> None:
        for path in self.path.glob("unfinished-*"):
            path.unlink(missing_ok=True)
