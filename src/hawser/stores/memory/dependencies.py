"""Which jobs wait for which, in dicts."""

from __future__ import annotations

from collections.abc import Iterable

from hawser.value.upstream import WaitsOn


class Dependencies:
    """Held jobs and the jobs that they wait for."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, bool]] = {}
        """By held job: each job that it was made to wait for, and whether that is over."""
        self.on: dict[str, WaitsOn] = {}
        """By held job: what it waits for of the others."""
        self._left: dict[str, int] = {}
        self._waiters: dict[str, list[str]] = {}
        """By job that is waited for: who waits. Those that wait no longer are passed over."""

    def add(self, waiter: str, upstream: Iterable[tuple[str, bool]], on: WaitsOn) -> None:
        self.of[waiter] = dict(upstream)
        self.on[waiter] = on
        self._left[waiter] = sum(not over for over in self.of[waiter].values())
        for id, over in self.of[waiter].items():
            if not over:
                self._waiters.setdefault(id, []).append(waiter)

    def __contains__(self, id: str) -> bool:
        """Whether a job waits for this one."""
        return id in self._waiters

    def waiters(self, id: str) -> list[str]:
        """Those that wait for this job now. One that waited for it, went on and waits again was added twice."""
        return [waiter for waiter in dict.fromkeys(self._waiters.get(id, ())) if not self.of.get(waiter, {}).get(id, True)]

    def left(self, waiter: str) -> list[str]:
        return [id for id, over in self.of[waiter].items() if not over]

    def end(self, waiter: str, id: str) -> bool:
        """The waiter does not wait for this job any longer; whether it waits for no other either."""
        waits = self.of[waiter]
        if not waits[id]:
            waits[id] = True
            self._left[waiter] -= 1
        return not self._left[waiter]

    def wait_instead(self, id: str, instead: str) -> None:
        """Those that wait for a job wait for another in its place."""
        for waiter in self._waiters.pop(id, ()):
            if (waits := self.of.get(waiter)) is not None and not waits.pop(id, True):
                waits[instead] = False
                self._waiters.setdefault(instead, []).append(waiter)

    def drop(self, waiter: str) -> None:
        """The waiter waits no longer."""
        self.of.pop(waiter, None)
        self.on.pop(waiter, None)
        self._left.pop(waiter, None)

    def forget(self, id: str) -> None:
        """No job waits for this one any longer."""
        self._waiters.pop(id, None)
