"""The command line. Next to nothing is imported here: from its first line on a program is to end in order."""

import os
import signal
import sys

TYPE_CHECKING = False  # as typing has it, without importing typing
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
    """The program `hawser`: 0 good, 1 failed, 2 bad usage, 130 interrupted, 141 the output is not read."""
    _open_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from hawser.cli.program import run  # noqa: PLC0415  # under the handler

    run()


def end_at_once(number: int, frame: object) -> None:
    """What Ctrl-C does while no command runs: nothing was begun, or all is over."""
    del frame
    os._exit(128 + number)


def _open_streams() -> None:
    """Where a standard stream is closed, the next file would get its number, and what is printed would be written there."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
