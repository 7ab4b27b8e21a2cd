"""Schedules in the histories: made, changed, fired in time, too late, twice, and on what no longer stands."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from hawser.clock import to_us
from hawser.schedule.change import pause, redefine, resume, run_now, skip_next
from hawser.schedule.declaration import Declaration
from hawser.schedule.rule import Cron, Every, text_of
from hawser.schedule.schedule import Advance, Definition, Schedule, create, plan
from hawser.store import Actor
from tests.model.machine import INDEX, QUEUES, SIGNS, TASKS, StoreMachine, each, few
from tests.model.played import same

NAMES = ("tick", "tock", "hourly")

RULES = few(
    Every(seconds=2),
    Every(seconds=2, missed="all", most_missed=3),
    Every(seconds=3, overlap="skip"),
    Every(seconds=5, missed="skip", jitter=4.0),
    Cron("* * * * *", overlap="skip"),
    Cron("0 * * * *", tz="Europe/Berlin"),
)
DECLARATIONS = few(*(Declaration(id=id, names=(id, "tick")) for id in ("red", "green", "blue")))


class ScheduledMachine(StoreMachine):
    """The machine with schedules beside the jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.advances: list[Advance] = []
        """All that were ever sent."""

    def definition(self, name: str, rule_: Any, index: int) -> Definition:
        task, queue = TASKS[index % len(TASKS)], QUEUES[index % len(QUEUES)]
        return Definition(name=name, rule_text=text_of(rule_), task=task, queue=queue, body=b'{"n":0}', tags=("x",))

    def fire(self, advances: list[Advance]) -> None:
        self.advances += advances
        self.ids += [job.id for advance in advances for job in advance.jobs]
        self.both("fire", advances)

    @each(2)
    @rule(name=few(*NAMES), rule_=RULES, index=INDEX, actor=SIGNS)
    def create_schedule(self, name: str, rule_: Any, index: int, actor: Actor) -> None:
        advance = create(self.definition(name, rule_, index), self.clock.now())
        self.advances.append(advance)
        self.both("put_schedule", advance, "create_schedule", actor)

    @precondition(lambda self: self.model.scheduled)
    @rule(limit=few(1, 2, 100))
    def fire_due(self, limit: int) -> None:
        due = self.both("due_schedules", limit)
        self.fire([plan(schedule, due.now) for schedule in due.schedules])

    @precondition(lambda self: self.model.scheduled)
    @rule(index=INDEX, change=few("pause", "resume", "redefine", "skip", "run"), rule_=RULES, actor=SIGNS)
    def change_schedule(self, index: int, change: str, rule_: Any, actor: Actor) -> None:
        schedule = self.model.schedules()[index % len(self.model.scheduled)]
        advance = self.changed(schedule, change, rule_, index)
        self.advances.append(advance)
        self.ids += [job.id for job in advance.jobs]
        self.both("put_schedule", advance, change, actor)

    def changed(self, schedule: Schedule, change: str, rule_: Any, index: int) -> Advance:
        now = self.clock.now()
        match change:
            case "pause":
                return pause(schedule, now, "ann", None)
            case "resume":
                return resume(schedule, now)
            case "skip":
                return skip_next(schedule, now)
            case "run":
                return run_now(schedule, now)
            case _:
                return redefine(schedule, self.definition(schedule.name, rule_, index), now)

    @each(2)
    @precondition(lambda self: self.advances)
    @rule(indexes=st.lists(INDEX, min_size=1, max_size=3))
    def fire_what_was_decided_before(self, indexes: list[int]) -> None:
        self.both("fire", [self.advances[-1 - index % len(self.advances)] for index in indexes])

    @each(4)
    @precondition(lambda self: self.model.scheduled)
    @rule(name=few(*NAMES))
    def delete_schedule(self, name: str) -> None:
        self.both("delete_schedule", name, Actor())

    @each(2)
    @precondition(lambda self: self.model.scheduled)
    @rule(index=INDEX, late=few(3.0, 20.0))
    def begin_anew(self, index: int, late: float) -> None:
        """Delete and create, by somebody who read the clock a while ago."""
        schedule = self.model.schedules()[index % len(self.model.scheduled)]
        self.delete_schedule(schedule.name)
        self.fire([create(schedule.definition, self.clock.now() - to_us(late))])
        self.fire_due(100)

    @each(3)
    @rule(declaration=DECLARATIONS)
    def declare(self, declaration: Declaration) -> None:
        self.both("declare", declaration)

    @invariant()
    def the_schedules_are_as_promised(self) -> None:
        same("the schedules", self.run(self.store.schedules()), self.model.schedules())
        if self.steps % 2:
            same("what is due", self.run(self.store.due_schedules(2)), self.model.due_schedules(2))
