"""The schedules that code declares, and how a store comes to agree with them while old and new workers run side by side. Pure.

The rule: for each schedule, the newest declaration that a living worker makes counts. A declaration is everything that an
app's code declares, known by what it says. It is as old as its first mention, and forgotten when no worker has made it for a
while. So a worker of the old release that starts once more changes nothing while a new one lives; a schedule that the new
release has removed goes on until the last worker that declares it is gone; and a release that is rolled back takes over when
the workers of the other are gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from hawser.schedule.change import redefine, retire, revive
from hawser.schedule.schedule import Advance, Definition, Schedule, create


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that a worker's code declares, all together."""

    id: str
    """Of what they say: the same code has the same."""
    names: tuple[str, ...]


def declaration(definitions: Iterable[Definition]) -> Declaration:
    ordered = sorted(definitions, key=lambda definition: definition.name)
    text = msgspec.json.encode(ordered)
    return Declaration(id=hashlib.sha256(text).hexdigest()[:32], names=tuple(each.name for each in ordered))


def reconcile(mine: Iterable[Definition], living: Sequence[Declaration], known: Iterable[Schedule], now: int) -> list[Advance]:
    """What a worker has to write so that the newest declaration that a living worker makes counts, for each schedule.

    `living` has the declarations of living workers, oldest first, and `mine` among them; `known` are all schedules.
    """
    own = {definition.name: definition for definition in mine}
    id = declaration(own.values()).id
    at_mine = next((i for i, each in enumerate(living) if each.id == id), len(living))
    newer = {name for each in living[at_mine + 1 :] for name in each.names}
    declared = {name for each in living for name in each.names}
    standing = {schedule.name: schedule for schedule in known}
    advances = [
        change
        for name, definition in own.items()
        if name not in newer and (change := _declare(standing.get(name), definition, now)) is not None
    ]
    gone = [each for each in standing.values() if each.declared and not each.retired and each.name not in declared]
    return [*advances, *map(retire, gone)]


def _declare(standing: Schedule | None, definition: Definition, now: int) -> Advance | None:
    if standing is None:
        return create(definition, now, declared=True)
    if standing.definition != definition or not standing.declared:
        return redefine(standing, definition, now, declared=True)
    return revive(standing) if standing.retired else None
