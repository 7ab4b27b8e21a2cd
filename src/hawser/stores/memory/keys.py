"""Who holds which deduplication key."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

from hawser.clock import to_us
from hawser.job import FOREVER, UNTIL_START, KeyScope, NewJob
from hawser.stores.debounce import due_until

SWEEP = 4
"""Run-out keys removed at each keyed enqueue: more than one, so they cannot pile up."""


class PutOff(NamedTuple):
    """The calls that became one debounced job."""

    id: str
    newest: str
    """The call whose payload it has."""
    until: int | None
    """When it is due at the latest."""


class Keys:
    """Holders by key and scope.

    A hold without a time ends with its job. A window ends at its time, or with its job if that lives longer.
    """

    def __init__(self, is_live: Callable[[str, KeyScope], bool], has_let_go: Callable[[str], bool]) -> None:
        self._is_live = is_live
        self._has_let_go = has_let_go
        """Whether a job held its key until its start, and has started."""
        self._holders: dict[KeyScope, tuple[str, int | None]] = {}
        self._windows: list[tuple[int, KeyScope, str]] = []
        self._held: dict[str, int] = {}
        self._put_off: dict[KeyScope, PutOff] = {}
        """What is known of the calls that became one debounced job."""

    def holder(self, scope: KeyScope, now: int) -> str | None:
        """The id of the job that holds the key now."""
        found = self._holders.get(scope)
        if found is None:
            return None
        id, until = found
        if until is None:
            return None if self._has_let_go(id) else id
        return id if until > now or self._is_live(id, scope) else None

    def take(self, job: NewJob, enqueued_at: int) -> None:
        """Give a new job its key; no other job may hold it."""
        until = None if job.key_ttl in (0, FOREVER, UNTIL_START) else enqueued_at + to_us(job.key_ttl)
        scope = self._hold(job, until)
        if job.debounce is not None:
            self._put_off[scope] = PutOff(job.id, job.id, due_until(job, enqueued_at))
        if until is not None:
            heapq.heappush(self._windows, (until, scope, job.id))

    def debounced(self, scope: KeyScope) -> PutOff | None:
        """What is known of the debounced job that has the key."""
        return self._put_off.get(scope)

    def replaced(self, scope: KeyScope, newest: str) -> None:
        """The debounced job that has the key has the payload of another call now."""
        self._put_off[scope] = self._put_off[scope]._replace(newest=newest)

    def take_again(self, job: NewJob) -> None:
        """Give a job that is live again its key; no other job may hold it."""
        self._hold(job, None)

    def _hold(self, job: NewJob, until: int | None) -> KeyScope:
        scope = job.key_scope
        self._set(scope, job.id, until)
        return scope

    def _set(self, scope: KeyScope, id: str, until: int | None) -> None:
        if scope not in self._holders:
            self._held[scope.queue] = self._held.get(scope.queue, 0) + 1
        self._holders[scope] = (id, until)
        self._put_off.pop(scope, None)

    def move(self, job: NewJob, scope: KeyScope, now: int) -> bool:
        """Let the job's hold go along into another scope; False when another job holds the key there."""
        if scope == job.key_scope:
            return True
        if self.holder(scope, now) not in (None, job.id):
            return False
        id, until = self._holders.get(job.key_scope, (None, None))
        if id == job.id:
            put_off = self._put_off.get(job.key_scope)
            self._drop(job.key_scope)
            self._set(scope, job.id, until)
            if put_off is not None:
                self._put_off[scope] = put_off
            if until is not None:
                heapq.heappush(self._windows, (until, scope, job.id))
        return True

    def end(self, job: NewJob, now: int) -> None:
        """The job holds its key no longer, unless its window goes on."""
        id, until = self._holders.get(job.key_scope, (None, None))
        if id == job.id and (until is None or until <= now):
            self._drop(job.key_scope)

    def sweep(self, now: int, limit: int) -> None:
        """Forget up to `limit` windows that have run out. The hold of a job that is still live ends with the job from now on."""
        while limit and self._windows and self._windows[0][0] <= now:
            until, scope, id = heapq.heappop(self._windows)
            limit -= 1
            if self._holders.get(scope) == (id, until):
                if self._is_live(id, scope):
                    self._holders[scope] = (id, None)
                else:
                    self._drop(scope)

    def count(self, queue: str) -> int:
        return self._held.get(queue, 0)

    def _drop(self, scope: KeyScope) -> None:
        del self._holders[scope]
        self._put_off.pop(scope, None)
        self._held[scope.queue] -= 1
        if not self._held[scope.queue]:
            del self._held[scope.queue]
