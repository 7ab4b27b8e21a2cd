"""The contract that every store keeps, as tests: each sentence of the methods in `hawser.store` is proven here.

A store's author writes one test module, with pytest-asyncio in its auto mode:

    from hawser.testing.contract import *

and four fixtures beside it, each for one test:

- `clock`: a `ManualClock`.
- `store`: an open store with that clock and no jobs; closed at the end.
- `reopen`: an async callable that closes `store` and gives an open one on the same data (a store that lives in one object
  gives that object).
- `second`: an async callable that gives one more open handle on the same data, for tests with several at once; closed at
  the end, too (a store that lives in one object gives that object).

`tests/contract/test_sqlite.py` is an example. Time moves by `clock.advance` only. The docstring of a test quotes what it
proves; one without a docstring proves what the values in `hawser.store` and `hawser.job` say of themselves. Failed
assertions show their values: the modules are registered with pytest before they are imported.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import pytest

SUBJECTS: Final = (
    "life",
    "enqueue",
    "keys",
    "key_window",
    "key_start",
    "debounce",
    "repeats",
    "depth",
    "claim",
    "order",
    "ageing",
    "shares",
    "turns",
    "grouped",
    "room",
    "limits",
    "rates",
    "group_limits",
    "group_rates",
    "group_order",
    "breakers",
    "leave",
    "expiry",
    "keeping",
    "lease",
    "set_back",
    "settle",
    "settle_answer",
    "fence",
    "chain",
    "steps",
    "output",
    "dependencies",
    "wait_spans",
    "waits",
    "crowds",
    "gathered",
    "events",
    "cancelled_upstream",
    "batches",
    "nested_batches",
    "members",
    "circles",
    "cancelled_batches",
    "extend",
    "reclaim",
    "recovery",
    "cut_leases",
    "schedules",
    "firing",
    "declarations",
    "workers",
    "history",
    "ended",
    "find",
    "letters",
    "groups",
    "stats",
    "queue_list",
    "operator",
    "requeue_spread",
    "edits",
    "controls",
    "policy",
    "prune",
    "audit",
    "access",
    "bulk",
    "rollups",
)

pytest.register_assert_rewrite(*(f"{__name__}.{subject}" for subject in SUBJECTS), f"{__name__}.making", f"{__name__}.scheduling")

_tests: dict[str, Any] = {}
for _subject in SUBJECTS:
    for _name, _value in vars(importlib.import_module(f"{__name__}.{_subject}")).items():
        if _name.startswith("test_") and _tests.setdefault(_name, _value) is not _value:
            raise ImportError(f"two tests of the contract are called {_name}; rename one")

globals().update(_tests)
__all__ = list(_tests)  # a test that is written is exported: none can be forgotten
