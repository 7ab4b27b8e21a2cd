"""Makes an image of the closed logs of a journal, in a process of its own: the owner goes on meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path

from hawser.stores.memory.journal.folder import Folder
from hawser.stores.memory.journal.image import ImageWriter
from hawser.stores.memory.journal.replay import StillClock, load
from hawser.stores.memory.store import MemoryStore


def compact(folder: Folder, upto: int) -> None:
    """Write the image that stands for the logs up to this number, none of which is written any more."""
    clock = StillClock()
    store = MemoryStore(clock=clock)
    end = load(folder, store, clock, upto)
    put_image(folder, end.log, end.frame, store)


def put_image(folder: Folder, number: int, frame: int, store: MemoryStore) -> None:
    """Write what a store holds as the image with this number; `frame` is the number of the first frame behind it."""
    folder.put_image(number, frame.to_bytes(8, "little") + ImageWriter().store(store))


if __name__ == "__main__":
    compact(Folder(Path(sys.argv[1])), int(sys.argv[2]))
