"""How many histories each test of the model plays. `HAWSER_MODEL_EXAMPLES=500` asks all of them for so many, on every store."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

from tests.repetition import LONG, times

ON_SERVERS: Final = ("postgres", "redis")
"""How the names of stores begin that are asked over a wire, and so are slower."""

ON_DISK: Final = ("sqlite", "journal")
"""Of those that write to a disk, which are between the two."""

ASKED: Final = os.environ.get("HAWSER_MODEL_EXAMPLES")

SETTINGS: Final = settings(
    max_examples=times(60, 500),
    stateful_step_count=50,
    # The same histories at every run of script/test, other ones at every run of script/long.
    derandomize=not LONG,
    deadline=None,
    print_blob=True,
    # A machine of many rules: some draws leave none that applies.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def whole(store: str, share: int = 1) -> settings:
    """Of the machine that plays everything: as many as asked for, or fewer by that share."""
    if store.startswith(ON_SERVERS):
        return _of(times(15, 150), share)
    return _of(times(30 if store.startswith(ON_DISK) else 60, 500), share)


def single(store: str) -> settings:
    """Of a machine that plays one subject."""
    if store.startswith(ON_SERVERS):
        return _of(times(5, 100))
    return _of(times(15 if store.startswith(ON_DISK) else 30, 500))


def _of(usual: int, share: int = 1) -> settings:
    return settings(SETTINGS, max_examples=max(1, int(ASKED or usual) // share))
