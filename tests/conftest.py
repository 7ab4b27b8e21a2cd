"""For every test: how signals stand when the run starts, in which order they run, and what their number may cost."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    """A run that was started with `nohup`, or with `&` in a script, ignores SIGINT, and so would all processes it starts.

    Tests that send SIGINT, and servers that end by it, would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


LONG_FIRST = (
    *("tests/worker/", "tests/lab/", "tests/model/", "tests/page/"),
    *("tests/docs/test_shop", "tests/cli/test_secrets", "tests/api/test_openapi"),
)
"""Where single tests take many seconds. They begin first, so that no process is left alone with them in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each process begins with a part of the tests, all of one size; each part begins with its share of the long ones."""
    parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.nodeid.startswith(LONG_FIRST)]
    short = [item for item in items if not item.nodeid.startswith(LONG_FIRST)]
    items[:] = [item for n in range(parts) for tests in (long, short) for item in _part(tests, n, parts)]


def _part(tests: list[pytest.Item], n: int, parts: int) -> list[pytest.Item]:
    return tests[len(tests) * n // parts : len(tests) * (n + 1) // parts]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """The tests themselves are a heap of some millions of objects, in each process of a run, and none of them is garbage: the
    collector leaves them alone. Looking through them again and again took a fifth of the time to collect."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
