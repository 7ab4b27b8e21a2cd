"""The groups of dead jobs: kept as jobs die and come back, so that asking for them does not read the jobs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hawser.stores.memory.row import Row


class GroupSize(NamedTuple):
    """A group: how many jobs, and the oldest and the newest of them."""

    task: str
    fingerprint: str
    size: int
    oldest: str
    newest: str


class Groups:
    """Ids of dead jobs by task, fingerprint and queue, in order."""

    def __init__(self) -> None:
        self._ids: defaultdict[tuple[str, str], defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))

    def add(self, row: Row) -> None:
        insort(self._ids[row.task, row.fingerprint()][row.queue], row.new.id)

    def remove(self, row: Row) -> None:
        name = row.task, row.fingerprint()
        ids = self._ids[name][row.queue]
        del ids[bisect_left(ids, row.new.id)]
        if not ids:
            del self._ids[name][row.queue]
        if not self._ids[name]:
            del self._ids[name]

    def of(self, queue: str | None, task: str | None) -> list[GroupSize]:
        """The groups of a queue and task, the largest first."""
        found = []
        for (of_task, fingerprint), queues in self._ids.items():
            lists = [ids for name, ids in queues.items() if queue in (None, name)]
            if lists and task in (None, of_task):
                ends = min(ids[0] for ids in lists), max(ids[-1] for ids in lists)
                found.append(GroupSize(of_task, fingerprint, sum(map(len, lists)), *ends))
        return sorted(found, key=lambda group: (-group.size, group.task, group.fingerprint))
