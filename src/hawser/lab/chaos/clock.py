"""A worker whose wall clock is wrong, and may be set while it runs. The monotonic clock stays as it is: it cannot be set.

By a library of a few lines that is loaded before C's own. libfaketime would be that, but Python's `time.sleep` fails under
it when the monotonic clock is left alone, and an experiment's journal needs that one to be the same for all.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from hawser.errors import ConfigError

CLOCK_VARIABLE: Final = "HAWSER_LAB_CLOCK"
COMPILERS: Final = ("cc", "gcc", "clang")
SOURCE: Final = Path(__file__).with_name("clock.c")


class WrongClock:
    """The wall clock of those who are started with `environ`. Use as a context manager around their lives."""

    def __init__(self, seconds: float = 0.0, *, compilers: Sequence[str] = COMPILERS) -> None:
        self._ahead = seconds
        self._compiler = _compiler(compilers)
        self._folder = Path()

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="hawser-clock-"))
        try:
            (self._folder / "ahead").touch()
            self.set(self._ahead)
            _build(self._compiler, self._folder / "clock.so")
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def environ(self) -> dict[str, str]:
        """For a process; all that it starts have the same clock."""
        return {"LD_PRELOAD": str(self._folder / "clock.so"), CLOCK_VARIABLE: str(self._folder / "ahead")}

    def set(self, seconds: float) -> None:
        """Ahead by so many seconds from now on, or behind when negative."""
        with (self._folder / "ahead").open("r+b", buffering=0) as file:
            file.write(int(seconds * 1e9).to_bytes(8, sys.byteorder, signed=True))


def _compiler(names: Sequence[str]) -> str:
    if sys.platform != "linux":
        raise ConfigError("clock: a wrong clock can only be made on Linux; leave this experiment out elsewhere")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise ConfigError(f"clock: no C compiler ({', '.join(names)}) to make a wrong clock with; install the Debian package gcc")
    return found


def _build(compiler: str, target: Path) -> None:
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(target), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own source
    if done.returncode:
        said = done.stderr.strip()[-1000:]
        raise ConfigError(f"clock: {compiler} could not make a wrong clock; install the Debian package libc6-dev: {said}")
