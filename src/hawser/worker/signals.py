"""What signals do: SIGTERM, SIGINT and SIGHUP drain, SIGUSR1 tells where each thread is."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from typing import Final

from hawser.telemetry.logs import flush

_DRAIN: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def stop_on_signals(
    stop: asyncio.Event, began: Callable[[int], None] | None = None, killed: Callable[[], None] | None = None
) -> None:
    """The first signal drains, a second SIGTERM or SIGINT ends at once. `began` and `killed` are called then.

    A second SIGHUP does nothing: when a terminal is closed, both the system and the shell send one.
    """

    def on_signal(number: int) -> None:
        if not stop.is_set():
            if began is not None:
                began(number)
            stop.set()
        elif number != signal.SIGHUP:
            if killed is not None:
                killed()
            flush()
            os._exit(128 + number)

    hear_signals(on_signal)


def hear_signals(told: Callable[[int], None]) -> None:
    """Have each signal that drains told, on the running loop of the main thread. One that is ignored from the start, as SIGHUP
    under nohup, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in _DRAIN:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, told, number)


def leave_to_the_supervisor() -> None:
    """A terminal sends these to all of its processes; the supervisor decides."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def tell_stacks() -> None:
    """On SIGUSR1 write where each thread is to standard error, even while Python itself is stuck; then what was set before."""
    if threading.current_thread() is not threading.main_thread():
        return
    faulthandler.register(signal.SIGUSR1, file=_unwaiting(), chain=signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL)


def _unwaiting() -> int:
    """Standard error opened a second time without blocking, where the system can do that."""
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
        return os.open("/proc/self/fd/2", flags)
    except OSError:
        return 2
