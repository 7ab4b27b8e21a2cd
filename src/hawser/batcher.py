"""What arrives while a write is under way goes into the next write."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Batcher(Generic[T]):
    """What waits to be written, in the order of its arrival. It knows no store, no thread and no event loop: one writer calls
    `take` and writes what it gets, again and again, until there is nothing left.

    When a batch is refused as a whole, the writer calls `split`. The next calls of `take` then hand its items out one by one, so
    that each item gets its own error only. When it may be written later, the writer calls `put_back`.
    """

    def __init__(self, most: int, size: Callable[[T], int] | None = None) -> None:
        """A batch has at most so many items; or is at most so large, if `size` tells how large one is, but has one at least."""
        self._most = most
        self._size = size
        self._alone: deque[T] = deque()
        self._items: deque[T] = deque()
        self._closed: Exception | None = None

    def __len__(self) -> int:
        return len(self._alone) + len(self._items)

    def __iter__(self) -> Iterator[T]:
        yield from self._alone
        yield from self._items

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def add(self, item: T) -> None:
        """Raises what `close` was given."""
        if self._closed is not None:
            raise self._closed
        self._items.append(item)

    def take(self) -> list[T]:
        """What is to be written next; nothing when nothing waits."""
        if self._alone:
            return [self._alone.popleft()]
        if self._size is None:
            return [self._items.popleft() for _ in range(min(self._most, len(self._items)))]
        batch: list[T] = []
        room = self._most
        while self._items and (not batch or self._size(self._items[0]) <= room):
            batch.append(self._items.popleft())
            room -= self._size(batch[-1])
        return batch

    def split(self, batch: Sequence[T]) -> bool:
        """The batch was refused and nothing of it was written. False when it is a single item: then the error is its own."""
        if len(batch) < 2:  # one is one
            return False
        self._alone.extend(batch)
        return True

    def put_back(self, batch: Sequence[T]) -> None:
        """The batch could not be written now: it is the next again."""
        (self._alone if len(batch) == 1 else self._items).extendleft(reversed(batch))

    def clear(self) -> list[T]:
        """Take out all that waits, so that each caller can be told that it will not be written."""
        waiting = list(self)
        self._alone.clear()
        self._items.clear()
        return waiting

    def close(self, error: Exception) -> None:
        """Take nothing more: `add` raises the error from now on. What waits is still to be taken."""
        self._closed = error
