"""The log that is being written: what arrives during a sync goes into the next frame."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections import defaultdict
from pathlib import Path
from typing import Final

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.stores.memory.journal.call import LoggedCall, encode
from hawser.stores.memory.journal.folder import Folder
from hawser.stores.memory.journal.frame import framed

MAX_FRAME: Final = 4_000
"""Calls in one frame. A frame is read at once, so it should not grow without end behind a slow disk."""


ZEROS_AHEAD: Final = 4 * 2**20
"""Bytes of zeros that are on the disk behind the last frame. A sync of bytes that were there before writes no new length of the
file and no new blocks, so the file system commits nothing of its own, and waits for no other file: a compaction's image, say."""


ZEROS_AT_ONCE: Final = 16 * 2**10


class Log:
    """A thread that writes and syncs. The first error ends it: after a failed sync it is not known what is on the disk."""

    def __init__(self, folder: Folder, number: int, frame: int, size: int) -> None:
        """`number` is that of the log, `frame` that of its first frame; `size` is that of the logs before, behind the image."""
        self._folder = folder
        self.number = number
        self.size = size
        """Bytes in the logs behind the newest image, or behind the one that is being made."""
        self._frame = frame
        self._file = self._new_file(number)
        self._end_at = 0
        """Where the next frame begins in the file."""
        self._room = 0
        """Up to where there are frames and zeros."""
        self._pending: list[LoggedCall] = []
        self._added = 0
        self._synced = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._failed: OSError | None = None
        self._closed = False
        self._rotate = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write_all, name="hawser-journal", daemon=True)
        self._thread.start()

    def _new_file(self, number: int) -> int:
        file = os.open(self._folder.log(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._folder.sync()
        return file

    @property
    def path(self) -> Path:
        return self._folder.log(self.number)

    @property
    def next_frame(self) -> int:
        return self._frame

    @property
    def works(self) -> bool:
        return self._failed is None

    def check(self) -> None:
        """Raise when nothing can be written any more."""
        if self._failed is not None:
            raise StoreUnavailable(self._why()) from self._failed
        if self._closed:
            raise StoreUnavailable("the journal is closed")

    def add(self, call: LoggedCall) -> None:
        """Calls are written in the order in which they were added."""
        with self._changed:
            self._pending.append(call)
            self._added += 1
            self._changed.notify_all()

    async def durable(self) -> None:
        """Wait until all that was added is on the disk."""
        with self._changed:
            if self._failed is not None:
                raise OutcomeUnknown(self._why()) from self._failed
            if self._synced >= self._added:
                return
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((self._added, waiter))
        await waiter

    def rotate(self) -> int:
        """Go on in a new file, and return the number of the old one, which is not written any more."""
        with self._changed:
            closed = self.number
            self._rotate = True
            self._changed.notify_all()
            while self.number == closed and self._failed is None and not self._closed:
                self._changed.wait()
            return closed

    def close(self) -> None:
        """Write what was added, and end."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._leave_file()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._closed and not self._rotate:
                    self._changed.wait()
                rotate, self._rotate = self._rotate, False
                calls, self._pending = self._pending[:MAX_FRAME], self._pending[MAX_FRAME:]
                if not calls and not rotate:
                    return
            try:
                if rotate:
                    self._go_on_in_new_file()
                if calls:
                    self._write(framed(self._frame, encode(calls)))
                    self._frame += 1
            except OSError as error:
                self._end(error)
                return
            self._told(len(calls))

    def _go_on_in_new_file(self) -> None:
        self._leave_file()
        file = self._new_file(self.number + 1)
        self._end_at = self._room = 0
        with self._changed:
            self._file = file
            self.number += 1
            self.size = 0
            self._changed.notify_all()

    def _leave_file(self) -> None:
        """Without zeros behind it: only the last log may end in something that is no frame."""
        file, self._file = self._file, -1
        if file < 0:
            return  # the disk failed between two files
        try:
            if self._failed is None:
                os.ftruncate(file, self._end_at)
                os.fdatasync(file)
        finally:
            os.close(file)

    def _make_room(self, size: int) -> None:
        """On a disk that is nearly full there are no zeros ahead, and the frame itself finds out whether it fits."""
        goal = self._end_at + size + ZEROS_AHEAD
        try:
            while self._room < goal:
                # One large write makes large pages in the cache, and each frame would count as a write of a whole one.
                self._room += os.pwrite(self._file, bytes(min(ZEROS_AT_ONCE, goal - self._room)), self._room)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
        os.fdatasync(self._file)

    def _write(self, data: bytes) -> None:
        if self._end_at + len(data) > self._room:
            self._make_room(len(data))
        self._end_at += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)
        self.size += len(data)

    def _told(self, count: int) -> None:
        with self._changed:
            self._synced += count
            synced = [waiter for number, waiter in self._waiting if number <= self._synced]
            self._waiting = [(number, waiter) for number, waiter in self._waiting if number > self._synced]
        _resolve(synced, None)

    def _end(self, error: OSError) -> None:
        with self._changed:
            self._failed = error
            self._changed.notify_all()
            waiting, self._waiting = [waiter for _, waiter in self._waiting], []
        _resolve(waiting, OutcomeUnknown(self._why()))

    def _why(self) -> str:
        return (
            f"the journal {str(self.path)!r} could not be written: {self._failed and self._failed.strerror}; mend the disk and "
            "restart this process, which then goes on with what was written"
        )


def _resolve(waiters: list[asyncio.Future[None]], error: Exception | None) -> None:
    """Answer those who wait, on their own event loops, with one call for each loop."""
    by_loop = defaultdict(list)
    for waiter in waiters:
        by_loop[waiter.get_loop()].append(waiter)
    for loop, theirs in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_answer, theirs, error)


def _answer(waiters: list[asyncio.Future[None]], error: Exception | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
