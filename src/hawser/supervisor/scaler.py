"""How many processes there should be: decided from the load alone."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from hawser.worker.options import WorkerOptions

OLDEST_WAITS_S: Final = 1.0
"""Seconds that the oldest due job has waited when one more process may help."""

BUSY: Final = 0.8
"""Share of the slots that run jobs, from which on more slots may help."""

LOOKS_COMPARED: Final = 3
"""Looks at the load of which the highest `running` counts: a single look may meet slots that are between two jobs."""

SPARE: Final = 0.5
"""Share of the slots that are left with one process less, up to which that one is spare."""


class Load(NamedTuple):
    """What there is to do, and who does it."""

    due: int
    oldest: float
    """Seconds that the oldest due job has waited."""
    running: int
    processes: int
    starting: bool
    """Whether one of the processes is not ready yet: what it will do about the load is not known."""


class Scaler:
    """One more while jobs wait too long and all slots are busy; one less after a while of little to do."""

    def __init__(self, options: WorkerOptions, now: float) -> None:
        self._options = options
        self._busy_at = now
        self._running: deque[int] = deque(maxlen=LOOKS_COMPARED)

    def decide(self, load: Load, now: float) -> int:
        """The number of processes from now on, at most one away from what it is."""
        slots, fewest, most = self._options.slots, self._options.processes, self._options.most_processes
        self._running.append(load.running)
        if load.due or load.running > SPARE * slots * (load.processes - 1):
            self._busy_at = now
            busy = max(self._running) >= BUSY * slots * load.processes
            if load.due and load.oldest > OLDEST_WAITS_S and busy and not load.starting and load.processes < most:
                self._running.clear()
                return load.processes + 1
        elif load.processes > fewest and now - self._busy_at >= self._options.scale_down_after:
            self._busy_at = now
            return load.processes - 1
        return load.processes
