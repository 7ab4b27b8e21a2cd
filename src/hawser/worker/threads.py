"""Threads for handlers that are plain functions. Calls go over one by one, results come back together."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from hawser.worker.run import Run

Call = Callable[[], Any]


class Ended(NamedTuple):
    """How a call ended: its value, or the exception if it failed."""

    run: Run
    value: Any
    failed: bool


class Threads:
    """As many threads as calls run at once, started when needed, up to the number of slots. They die with the process."""

    def __init__(self, ended: Callable[[Ended], None]) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[tuple[Run, Call] | None] = SimpleQueue()
        self._results: deque[Ended] = deque()
        self._told = False
        self._threads = 0
        self._busy = 0

    def start(self, run: Run, call: Call) -> None:
        self._busy += 1
        if self._busy > self._threads:
            try:
                threading.Thread(target=self._work, name=f"hawser-slot-{self._threads + 1}", daemon=True).start()
            except RuntimeError:
                self._busy -= 1
                raise
            self._threads += 1
        self._calls.put((run, call))

    def stop(self) -> None:
        """Let idle threads end; those in a handler end with it, or with the process."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (todo := self._calls.get()) is not None:
            run, call = todo
            try:
                ended = Ended(run, call(), failed=False)
            except BaseException as error:  # noqa: BLE001  # SystemExit too: it ends the attempt, not the worker
                ended = Ended(run, error, failed=True)
            self._results.append(ended)
            if not self._told:
                # `_collect` lowers the flag before it empties the deque, so nothing is left behind.
                self._told = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop has ended: so has the worker
            del run, call, todo, ended

    def _collect(self) -> None:
        self._told = False
        while self._results:
            self._busy -= 1
            self._ended(self._results.popleft())
