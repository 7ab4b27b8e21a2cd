"""The faults that a hostile look found, by number, and what keeps each from coming back.

A place is a file of tests, or a case of the attack (`python -m tests.drills.attack`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.drills.attack import all_cases

ROOT = Path(__file__).parents[2]
CONTRACT = "src/hawser/testing/contract"

FAULTS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: (
        "jobs die without ever being started",
        ("kill-everything-sqlite", "kill-supervisor-postgres", "tests/lab/test_checker.py"),
    ),
    2: ("children of a killed process block the SQLite file", ("orphans-of-a-killed-writer", "tests/stores/test_sqlite_fork.py")),
    3: ("a fork during a write blocks the SQLite file", ("fork-during-a-write", "process-in-a-handler", "preloaded-children")),
    4: ("a repeated POST makes a second job", ("server-killed-and-repeated", "tests/api/test_repeats.py")),
    5: ("clock set back to a day without a table", ("server-clock-set-back-days", "tests/stores/test_postgres_set_back.py")),
    6: ("jobs stuck after a failover with a zombie", ("zombie-primary", "tests/lab/test_replicated_pair.py")),
    7: ("clock set back by an hour: due jobs wait", ("clock-set-back", "server-clock-set-back", f"{CONTRACT}/set_back.py")),
    8: ("outcomes dropped after an outage", ("store-away-for-three-leases", "tests/worker/test_outage.py")),
    9: ("a full pipe, SIGHUP and a closed terminal", ("full-pipe", "sighup", "closed-terminal", "stacks")),
    10: ("old workers and new jobs", ("two-releases-sqlite", "unaccepted-postgres", "tests/worker/test_refusals.py")),
    11: ("a store that cannot write looks healthy", ("sqlite-write-lock-held", "tests/api/test_readiness.py")),
    12: ("unknown options are ignored", ("tests/unit/test_unknown_options.py",)),
    13: ("the wrong handler is blamed", ("handler-stops-the-loop-postgres", "tests/worker/test_blame.py")),
    14: ("lab drain ends in a division by zero", ("tests/lab/test_drain.py", ".ci/run")),
    15: ("SQLite file removed or replaced", ("sqlite-file-removed", "sqlite-log-removed", "tests/stores/test_sqlite_place.py")),
    16: ("the password of the store is logged", ("tests/cli/test_secrets.py",)),
    17: (
        "behind a plain proxy everyone is admin",
        ("bare-reverse-proxy", "tests/api/test_keyless.py", "tests/api/test_proxy.py"),
    ),
    18: ("keys of one task are taken by another", (f"{CONTRACT}/keys.py", "tests/api/test_repeats.py")),
    19: ("headers without an end", ("endless-header", "half-open-connections", "tests/api/test_connections.py")),
    20: ("a revoked key goes on in open calls", ("tests/api/test_open_calls.py",)),
    21: ("one key takes all event streams", ("tests/api/test_events.py",)),
    22: ("a lease can be guessed", ("tests/api/test_limits.py", "tests/api/test_pull.py")),
    23: ("rates count requests and not jobs", ("tests/api/test_limits.py",)),
    24: ("the audit misses bulk actions and refusals", ("tests/cli/test_audit.py", "tests/api/test_visits.py")),
    25: ("wrong TLS files look like a fault of Hawser", ("tests/api/test_tls.py",)),
    26: ("a page of jobs sorts whole rows", ("tests/stores/test_sqlite_find.py", "tests/stores/test_postgres_find.py")),
    27: ("lists carry whole payloads", ("tests/api/test_lists.py",)),
    28: ("groups of dead jobs are slow", (f"{CONTRACT}/groups.py", "tests/api/test_groups.py")),
    29: ("bulk operations end with their server", (f"{CONTRACT}/bulk.py", "tests/api/test_operations.py")),
    30: ("an empty filter answers in many pages", ("tests/api/test_lists.py", "tests/stores/test_sqlite_find.py")),
    31: ("messages without a next step", ("tests/unit/test_bad_input.py", "tests/stores/test_postgres_refusals.py")),
    32: ("the demo says that it removed a store", ("tests/cli/test_program.py",)),
    33: ("JobQueue changes payloads silently", ("tests/unit/test_queue.py",)),
    34: ("the OpenAPI document has unions without names", ("tests/api/test_openapi.py",)),
    35: ("alerts that operators would set", ("tests/deploy/test_deploy.py", "tests/api/test_metrics.py")),
    36: ("schedules, parents and counts over HTTP", ("tests/api/test_schedules.py", "tests/api/test_jobs.py")),
    37: ("the first key on a new store", ("tests/cli/test_keys.py",)),
}


def test_every_number_is_here():
    assert list(FAULTS) == list(range(1, 38))


@pytest.mark.parametrize("number", FAULTS)
def test_a_fault_that_was_found_has_a_kept_test(number):
    _, places = FAULTS[number]
    cases = all_cases()
    missing = [place for place in places if place not in cases and not (ROOT / place).is_file()]
    assert missing == []
