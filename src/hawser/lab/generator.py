"""The load of the experiments: a mix of classes, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from hawser.job import NewJob

FAST: Final = (1, 5)
SLOW_MS: Final = (200, 2_000)
ONCE: Final = (20, 400)
"""Milliseconds, from and to."""

MIXED: Final[Mapping[str, float]] = {"fast": 70, "slow": 20, "flapping": 5, "poison": 5}
"""Shares of the classes in the load that stands for a company's day."""

WITH_LONG: Final[Mapping[str, float]] = {**MIXED, "slow": 15, "longer_than_the_lease": 5}

WITH_ONCE: Final[Mapping[str, float]] = {**WITH_LONG, "fast": 55, "once": 15}

SOFT_POISON: Final = ("raise",)
HEALTHY_JOB_ATTEMPTS: Final = 50
"""Starts that a healthy job has: in a storm of faults it may need many."""

POISON_TRIES: Final = 3

ALL_POISON: Final = ("raise", "exit", "segfault", "kill", "memory", "hoard")
"""How a poison job ends: by an exception, or with its whole process."""


class LoadPlan:
    """An endless row of jobs. Each payload carries its place in it, so that a gap can be seen."""

    def __init__(
        self,
        seed: int,
        mix: Mapping[str, float] = MIXED,
        poison: tuple[str, ...] = SOFT_POISON,
        tries: int = HEALTHY_JOB_ATTEMPTS,
    ) -> None:
        self._dice = random.Random(seed)  # noqa: S311  # no secret: a load that can be repeated
        self._classes = tuple(mix)
        self._shares = tuple(mix.values())
        self._poison = poison
        self._tries = tries
        self.made = 0
        self.poisoned = 0
        """Of those, how many will be dead."""

    def take(self, count: int) -> list[NewJob]:
        """The next so many."""
        return list(self._jobs(count))

    def _jobs(self, count: int) -> Iterator[NewJob]:
        for name in self._dice.choices(self._classes, self._shares, k=count):
            seq, self.made = self.made, self.made + 1
            match name:
                case "fast":
                    yield self._sleeper("fast", seq, FAST)
                case "slow":
                    yield self._sleeper("slow", seq, SLOW_MS)
                case "once":
                    yield self._sleeper("once", seq, ONCE, tries=1)
                case "poison":
                    kind = self._dice.choice(self._poison)
                    self.poisoned += 1
                    task = "memory_bomb" if kind == "memory" else "poison"
                    yield NewJob(task=task, body=msgspec.json.encode({"seq": seq, "kind": kind}), max_attempts=POISON_TRIES)
                case _:
                    yield NewJob(task=name, body=b'{"seq":%d}' % seq, max_attempts=self._tries)

    def _sleeper(self, task: str, seq: int, between: tuple[int, int], tries: int | None = None) -> NewJob:
        body = b'{"seq":%d,"ms":%d}' % (seq, self._dice.randint(*between))
        return NewJob(task=task, body=body, max_attempts=tries or self._tries)


def noops(count: int, queue: str = "default") -> list[NewJob]:
    """Jobs that do nothing, with a payload as small as a real one."""
    return [NewJob(task="noop", queue=queue, body=b'{"seq":%d,"to":"user@example.com"}' % seq) for seq in range(count)]
