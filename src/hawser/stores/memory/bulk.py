"""The bulk operations of the memory store."""

from __future__ import annotations

from typing import Final

import msgspec

from hawser.clock import at, from_datetime, to_us
from hawser.store import BULK_KEPT, BULK_SILENCE, BULKS_LISTED, BulkOperation, BulkPlan, BulkState, BulkStep

_SILENCE: Final = to_us(BULK_SILENCE)


class Bulks:
    """Bulk operations and their steps. The store's lock guards it."""

    def __init__(self) -> None:
        self._kept: dict[str, BulkOperation] = {}

    def start(self, id: str, plan: BulkPlan, owner: str, now: int) -> BulkOperation:
        if id not in self._kept:
            self._kept[id] = BulkOperation(id=id, plan=plan, owner=owner, started_at=at(now), seen_at=at(now))
        return self._shown(id, now)

    def get(self, id: str, now: int) -> BulkOperation | None:
        return self._shown(id, now) if id in self._kept else None

    def all(self, now: int) -> list[BulkOperation]:
        return [self._shown(id, now) for id in sorted(self._kept, reverse=True)[:BULKS_LISTED]]

    def current(self, step: BulkStep) -> BulkOperation | None:
        """The operation, when the step may be written."""
        kept = self._kept.get(step.id)
        if kept is None or kept.state is not BulkState.RUNNING or (kept.turn, kept.cursor) != (step.turn, step.behind):
            return None
        return kept

    def write(self, step: BulkStep, did: int, now: int) -> BulkOperation:
        kept = self._kept[step.id]
        moved = self._kept[step.id] = msgspec.structs.replace(
            kept,
            cursor=step.cursor,
            done=kept.done + did,
            skipped=kept.skipped + step.skipped + len(step.ids) - did,
            state=step.ends or BulkState.RUNNING,
            error=step.error,
            seen_at=at(now),
            ended_at=None if step.ends is None else at(now),
        )
        return moved

    def take(self, owner: str, limit: int, now: int) -> list[BulkOperation]:
        taken = [id for id in sorted(self._kept) if self._interrupted(id, now)][:limit]
        for id in taken:
            kept = self._kept[id]
            self._kept[id] = msgspec.structs.replace(kept, owner=owner, turn=kept.turn + 1, seen_at=at(now))
        return [self._kept[id] for id in taken]

    def release(self, id: str, turn: int, now: int) -> None:
        kept = self._kept.get(id)
        if kept is not None and kept.state is BulkState.RUNNING and kept.turn == turn:
            self._kept[id] = msgspec.structs.replace(kept, seen_at=at(now - _SILENCE))

    def stop(self, id: str, now: int) -> bool:
        """False when it has ended before."""
        if self._kept[id].state is not BulkState.RUNNING:
            return False
        self._kept[id] = msgspec.structs.replace(self._kept[id], state=BulkState.STOPPED, ended_at=at(now))
        return True

    def forget(self, now: int) -> None:
        oldest = at(now - to_us(BULK_KEPT))
        for id in [id for id, kept in self._kept.items() if kept.ended_at is not None and kept.ended_at <= oldest]:
            del self._kept[id]

    def _interrupted(self, id: str, now: int) -> bool:
        kept = self._kept[id]
        return kept.state is BulkState.RUNNING and abs(now - from_datetime(kept.seen_at)) >= _SILENCE

    def _shown(self, id: str, now: int) -> BulkOperation:
        return msgspec.structs.replace(self._kept[id], interrupted=self._interrupted(id, now))
