"""The order of claims over many sources: the heap takes what a look at all of them would."""

import random

import pytest

from hawser.store import Share
from hawser.stores.order import Entry, choose, pick

NOW = 1_000


class SeenSource:
    """A lane that counts how often its head is looked at."""

    def __init__(self, task: str, entries: list[Entry], *, waited: bool = False) -> None:
        self.task = task
        self.waited = waited
        self.looks = 0
        self._entries = entries

    @property
    def head(self) -> Entry | None:
        self.looks += 1
        return self._entries[0] if self._entries else None

    @property
    def begin(self) -> Entry | None:
        return self.head

    def pop(self) -> None:
        self._entries.pop(0)


def lanes(seed: int, count: int, tasks: int) -> list[SeenSource]:
    """Lanes with jobs that are due, that are not, and many that fell due together."""
    dice = random.Random(seed)
    made = []
    for n in range(count):
        due = sorted((dice.choice((10, 20, 30, NOW, NOW + 1)), dice.randrange(5)) for _ in range(dice.randrange(6)))
        made.append(SeenSource(f"task{n % tasks}", [(*each, n, k) for k, each in enumerate(due)]))
    return made


def by_looking_at_all(sources: list[SeenSource], places: int, room: dict[str, int]) -> list[Entry]:
    """The rule as it is said: again and again the first of all heads."""
    taken: list[Entry] = []
    while len(taken) < places:
        heads = [
            (head[0], head[1], n, source)
            for n, source in enumerate(sources)
            if (head := source.head) is not None and head[0] <= NOW and room.get(source.task, 1) > 0
        ]
        if not heads:
            break
        best = min(heads, key=lambda each: each[:3])[3]
        head = best.head
        assert head is not None
        taken.append(head)
        best.pop()
        if best.task in room:
            room[best.task] -= 1
    return sorted(taken, key=lambda entry: entry[:2])


@pytest.mark.parametrize("seed", range(60))
def test_a_claim_takes_the_first_of_all_heads_again_and_again(seed: int) -> None:
    dice = random.Random(seed)
    count, tasks, places = dice.choice((1, 2, 7, 40)), dice.choice((1, 3, 40)), dice.choice((0, 1, 5, 50))
    room = {f"task{n}": dice.randrange(4) for n in range(tasks) if dice.random() < 0.5}
    left = dict(room)
    wanted = by_looking_at_all(lanes(seed, count, tasks), places, left)
    assert pick(lanes(seed, count, tasks), places, 0, NOW, room) == wanted
    assert room == left


def test_a_job_does_not_look_at_the_heads_of_all_sources() -> None:
    sources = [SeenSource(f"task{n}", [(n, k, n) for k in range(3)]) for n in range(1_000)]
    room = {source.task: 2 for source in sources}
    taken = choose([Share("default")], 200, 0, NOW, lambda _: [sources], room, lambda _: None)
    assert [entry[0] for entry in taken] == [n // 2 for n in range(200)]
    assert sum(source.looks for source in sources) < 5 * 1_000
