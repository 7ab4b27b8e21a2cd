"""Small makers for the tests of schedules."""

from __future__ import annotations

from hawser.schedule.rule import Every, text_of
from hawser.schedule.schedule import Definition, Schedule, create, plan
from hawser.store import Filter, Store
from hawser.store.schedules import Advanced
from hawser.testing.contract.making import ids

MINUTELY = text_of(Every(minutes=1))
CAREFUL = text_of(Every(minutes=1, overlap="skip"))


def a_definition(name: str = "s", rule_text: str = MINUTELY, **fields: object) -> Definition:
    return Definition(**{"name": name, "rule_text": rule_text, "task": "work", **fields})  # type: ignore[arg-type]


async def created(store: Store, *names: str, **fields: object) -> None:
    for name in names or ("s",):
        advance = create(a_definition(name, **fields), (await store.due_schedules(0)).now)  # type: ignore[arg-type]
        assert await store.fire([advance]) == [Advanced.DONE]


async def stands(store: Store, name: str = "s") -> Schedule:
    [schedule] = await store.schedules([name])
    return schedule


async def fired(store: Store) -> list[Advanced]:
    """Fire what is due, as a scheduler would."""
    due = await store.due_schedules(100)
    return await store.fire([plan(schedule, due.now) for schedule in due.schedules])


async def jobs_of(store: Store, name: str = "s") -> list[str]:
    return ids((await store.find(Filter(schedule=name))).jobs)
