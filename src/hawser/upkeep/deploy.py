"""Notes in the audit when another version of the app begins to work, so that charts know it after its workers are forgotten."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Final

from hawser.store import Actor, Store

DEPLOY: Final = "deploy"
"""The action of the record; its target is `version:` and the version."""

DEPLOYS_READ: Final = 20
"""The newest deploys among which a version is looked for."""


class DeployNoter:
    """Leaves one record for a version, when it is new or comes back after another one."""

    def __init__(self, store: Store, version: str | None, own: Container[str], worker: str) -> None:
        """`own` are the names of the workers that this process speaks for; `worker` is who signs."""
        self._store = store
        self._target = None if version is None else f"version:{version}"
        self._version = version
        self._own = own
        self._worker = worker

    async def turn(self) -> float:
        """Note the version if that is to be done. A lost answer, or processes that start at once, leave two records, of which
        readers take the first."""
        if self._target is not None and await self._is_new():
            await self._store.note(DEPLOY, self._target, Actor(self._worker))
        return math.inf

    async def _is_new(self) -> bool:
        latest = await self._store.audit(DEPLOYS_READ, None, DEPLOY)
        if not any(record.target == self._target for record in latest):
            return True
        if latest[0].target == self._target:
            return False
        # Another version came since. While old and new workers run side by side, a restart of an old one is no deploy.
        workers = await self._store.workers()
        return not any(each.beat.app_version == self._version and each.beat.worker not in self._own for each in workers)
