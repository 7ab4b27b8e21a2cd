"""From files to a store: the newest image, and the calls of the logs behind it made again."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from hawser.errors import HawserError
from hawser.stores.memory.journal.call import Arguments, LoggedCall, decode_calls, digest_of, logged_methods, run
from hawser.stores.memory.journal.folder import Folder
from hawser.stores.memory.journal.frame import frames
from hawser.stores.memory.journal.image import ImageReader, other_version
from hawser.stores.memory.store import MemoryStore

LOGGED_METHODS: Final = logged_methods()
ARGUMENTS: Final = {name: Arguments(method) for name, method in LOGGED_METHODS.items()}


class StillClock:
    """Says what the journal says: the time of the call that is being made, or made again."""

    def __init__(self) -> None:
        self.at = 0

    def now(self) -> int:
        return self.at


class End(NamedTuple):
    """Where a journal ends."""

    log: int
    """The number of its last log, or of its image when there is no log behind it."""
    frame: int
    """The number of the next frame."""
    size: int
    """Bytes of the logs behind the image."""


def load(folder: Folder, store: MemoryStore, clock: StillClock, upto: int | None = None) -> End:
    """Fill a new store, which must read `clock`, with all that the folder has, or with the logs up to a number."""
    image = folder.newest_image()
    frame, size = 1, 0
    if image:
        data = folder.image(image).read_bytes()
        frame = int.from_bytes(data[:8], "little")
        ImageReader().fill(store, data[8:])
    logs = [number for number in folder.logs_after(image) if upto is None or number <= upto]
    for number in logs:
        last = upto is None and number == logs[-1]
        end = 0
        for found in frames(folder.log(number), frame, last_log=last):
            for call in decode_calls(found.body):
                make_again(store, clock, call)
            frame, end = frame + 1, found.end
        if last:
            folder.cut(number, end)
        size += end
    return End(logs[-1] if logs else image, frame, size)


def make_again(store: MemoryStore, clock: StillClock, call: LoggedCall) -> None:
    """Make a call of the log on the store, and compare the answers."""
    clock.at = call.now
    store.watch.restore(call.latest)
    answer: Any
    try:
        answer = run(LOGGED_METHODS[call.method](store, *ARGUMENTS[call.method].decode(call.arguments)))
    except HawserError as error:
        answer = error
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise other_version(f"a call of {call.method} that this version does not know") from error
    if digest_of(answer) != call.digest:
        raise other_version(f"a call of {call.method} that this version answers in another way")
