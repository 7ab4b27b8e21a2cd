"""Runs that stand, as the fence lets them through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hawser.store import LeaseRef, Settlement
from hawser.stores.sqlite.tx import Tx

_json = msgspec.json.Encoder().encode


class RunningRow(NamedTuple):
    """A running job, as far as its next step depends on it. Same order as in `held` and `expired`."""

    seq: int
    id: str
    lease: int
    task: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    timeout: float
    lease_until: int
    started_at: int
    worker: str
    key: str | None
    key_ttl: float
    cancel_asked: int
    returned: int
    group: str | None
    batch: str | None


def held(tx: Tx, leases: Sequence[Settlement] | Sequence[LeaseRef]) -> dict[tuple[str, int], RunningRow]:
    """The fence, for many runs at once."""
    pairs = _json([(ref.id, ref.lease) for ref in leases])
    runs = map(RunningRow._make, tx.con.execute(tx.sql["held"], {"leases": pairs}))
    return {(run.id, run.lease): run for run in runs}
