"""A disk whose power can be cut: what was not forced onto it by then is gone.

A file with an ext4 in it, mounted by a loop device. The cut is the file system's own shutdown, without a flush of its journal:
from then on nothing reaches the disk, and what only memory knew is lost, as with a machine that goes dark.

A sync that is under way at the cut may be answered with success although its blocks are lost: of 118 syncs of growing files that
were answered after a cut had begun, 16 were (Linux 6.18); of 243,000 that were answered before, none. A machine that goes dark
hears no such answer. So those who write to the disk are killed right before the cut: a killed process does not return from its
call. A caller that cannot be killed must not believe what it is answered from then on.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from hawser.errors import ConfigError
from hawser.lab.chaos.disk import run_as_root

SHUTDOWN: Final = 0x8004587D
"""EXT4_IOC_SHUTDOWN."""

NO_FLUSH: Final = 2
DISK_BYTES: Final = 512 * 2**20
FILES_CLOSED_WITHIN_S: Final = 20.0
"""Seconds until those who hold files on a dead disk must have let go."""


class PowerCut:
    """Use as a context manager: all of it is gone in the end."""

    def __init__(self, size: int = DISK_BYTES) -> None:
        self._size = size
        self._home = Path()
        self.cuts = 0

    @property
    def folder(self) -> Path:
        """Where the disk is mounted."""
        return self._home / "disk"

    def __enter__(self) -> Self:
        if os.geteuid():
            raise ConfigError("power: only root may mount a file system; run this experiment as root, or leave it out")
        self._home = Path(tempfile.mkdtemp(prefix="hawser-power-"))
        try:
            self.folder.mkdir()
            with self._image.open("wb") as image:
                image.truncate(self._size)
            run_as_root("mkfs.ext4", "-q", "-F", str(self._image))
            self._mount()
        except BaseException:
            shutil.rmtree(self._home, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ConfigError):
            run_as_root("umount", "-l", str(self.folder))
        shutil.rmtree(self._home, ignore_errors=True)

    def cut(self) -> None:
        """Now. Every write from here on fails, and no answer counts any more: kill first those who would believe one."""
        place = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(place, SHUTDOWN, struct.pack("I", NO_FLUSH))
        finally:
            os.close(place)
        self.cuts += 1

    def restore(self) -> None:
        """The power is back: the disk is as it was at the cut. No process may hold a file on it any more."""
        end = time.monotonic() + FILES_CLOSED_WITHIN_S
        while True:
            try:
                run_as_root("umount", str(self.folder))
            except ConfigError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
            else:
                break
        self._mount()

    def _mount(self) -> None:
        run_as_root("mount", "-o", "loop", str(self._image), str(self.folder))

    @property
    def _image(self) -> Path:
        return self._home / "image"
