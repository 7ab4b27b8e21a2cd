"""For every test: how signals stand when the run starts."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A run that was started with `nohup`, or with `&` in a script, ignores SIGINT, and so would all processes it starts.

    Tests that send SIGINT, and servers that end by it, would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
