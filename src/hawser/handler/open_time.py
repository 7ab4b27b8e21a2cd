"""How long a handler's transaction keeps all others from writing, where a store has one writer at a time."""

from __future__ import annotations

import logging
from time import monotonic
from types import TracebackType
from typing import Self

from hawser.job import Claimed

_logger = logging.getLogger("hawser.job")


class OpenTime:
    """Measures a transaction of a handler from its begin to its end, and says so in the log when that was too long."""

    def __init__(self, job: Claimed, what: str) -> None:
        self._job = job
        self._what = what
        self._allowed: float | None = None
        self._begun = 0.0

    def begun(self, allowed: float | None) -> None:
        """It is open now, and may be for so many seconds; None where nobody waits for its end."""
        self._allowed = allowed
        self._begun = monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._allowed is None or (lasted := monotonic() - self._begun) <= self._allowed:
            return
        _logger.warning(
            "%s: this handler's transaction was open for %.1f s. Meanwhile nobody else could write to the SQLite file, leases "
            "included; more than %.2g s is too long. Do slow work before the transaction, or use PostgreSQL",
            self._what,
            lasted,
            self._allowed,
            extra={"job_id": self._job.id, "task": self._job.task, "attempt": self._job.attempt},
        )
