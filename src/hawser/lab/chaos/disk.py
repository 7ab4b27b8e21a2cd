"""A small disk of its own that can be filled, and freed again."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from hawser.errors import ConfigError
from hawser.lab.chaos.plan import MakeFault

_CHUNK: Final = b"\0" * 65_536


class SmallDisk:
    """A file system in memory of so many bytes. Use as a context manager: it is unmounted in the end."""

    def __init__(self, size: int = 16 * 2**20) -> None:
        self.size = size
        self.folder = Path()

    def __enter__(self) -> Self:
        if os.geteuid():
            raise ConfigError("disk: only root may mount a file system; run this experiment as root, or leave it out")
        self.folder = Path(tempfile.mkdtemp(prefix="hawser-disk-"))
        try:
            run_as_root("mount", "-t", "tmpfs", "-o", f"size={self.size},mode=0755", "hawser-lab", str(self.folder))
        except ConfigError:
            self.folder.rmdir()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # Lazily: a process that dies at this moment may still hold a file.
        run_as_root("umount", "-l", str(self.folder))
        with suppress(OSError):
            self.folder.rmdir()

    @property
    def left(self) -> int:
        """Bytes that are free."""
        return shutil.disk_usage(self.folder).free

    def fill(self) -> None:
        """Take all that is free; what was given back by others since, too."""
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(_CHUNK)
        # The last few bytes: a write of a whole chunk fails or falls short before they are gone.
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(_CHUNK[:512])

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"


def fill_for(disk: SmallDisk, seconds: float) -> MakeFault:
    """The disk is full for so long."""

    def fault(_: random.Random) -> None:
        disk.fill()
        time.sleep(seconds)
        disk.free()

    return fault


def run_as_root(program: str, *arguments: str) -> None:
    """Run a program of the system; a clear error when it is not there or fails."""
    path = shutil.which(program)
    if path is None:
        raise ConfigError(f"disk: there is no program {program} here; install util-linux, and run as root")
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)  # noqa: S603  # a program of the system
    if done.returncode:
        raise ConfigError(f"disk: {program} failed: {done.stderr.strip()}; a container needs the right to mount")
