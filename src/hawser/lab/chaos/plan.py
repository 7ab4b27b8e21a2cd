"""Faults at random times, one after the other: the same plan for the same seed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf

MakeFault = Callable[[random.Random], object]
"""Does something bad, to a victim that it chooses by these dice. False says that there was no victim."""

Tell = Callable[[str], None]
"""Told of each fault by its name, before it is made: for a journal."""


def _silent(_: str) -> None:
    """Report nothing."""


class Plan:
    """Which faults, how often relative to each other, and how far apart.

    What is drawn depends on the seed alone; when it happens, and to whom, also on what the victims do meanwhile.
    """

    def __init__(
        self,
        faults: Mapping[str, tuple[float, MakeFault]],
        *,
        seed: int,
        every: tuple[float, float] = (0.3, 1.2),
        tell: Tell = _silent,
    ) -> None:
        self._names = list(faults)
        self._weights: Sequence[float] = [weight for weight, _ in faults.values()]
        self._faults = [fault for _, fault in faults.values()]
        self._every = every
        self._dice = random.Random(seed)  # noqa: S311  # a plan is to be repeated, not kept secret
        self._tell = tell
        self.made: Counter[str] = Counter()

    def run(self, *, seconds: float = inf, times: float = inf, stop: threading.Event | None = None) -> Counter[str]:
        """Make faults for so long, or so many, or until told to stop; how many were made of each."""
        stop = stop or threading.Event()
        end = time.monotonic() + seconds
        while self.made.total() < times and not stop.wait(min(self._dice.uniform(*self._every), end - time.monotonic())):
            if time.monotonic() >= end:
                break
            self.turn()
        return self.made

    def turn(self) -> None:
        """One fault, now."""
        [number] = self._dice.choices(range(len(self._names)), self._weights)
        self._tell(self._names[number])
        # Dice of its own: how often a fault throws them depends on who is there, and must not change what is drawn next.
        dice = random.Random(self._dice.getrandbits(64))  # noqa: S311
        if self._faults[number](dice) is not False:
            self.made[self._names[number]] += 1
