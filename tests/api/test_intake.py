"""The intake: many requests, one write, each with its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from hawser import job as job_module
from hawser.api.intake import REQUESTS_PER_WRITE, Intake
from hawser.errors import FieldError, OutcomeUnknown, QueueFull
from hawser.handle import Handle
from hawser.job import NewJob, new_job
from hawser.limit import Limit
from hawser.store import Actor, Store, Target
from hawser.value.payload import Parameters


def jobs(count: int, queue: str = "q") -> list[NewJob]:
    return [new_job(task="t", body=b"{}", queue=queue) for _ in range(count)]


class Slow:
    """A store whose writes wait until they are let through."""

    def __init__(self) -> None:
        self.writes: list[int] = []
        self.gate = asyncio.Event()

    async def put(self, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        self.writes.append(len(jobs))
        await self.gate.wait()
        if any(job.queue == "full" for job in jobs):
            raise QueueFull("full", 1, 1)
        if any(job.queue == "away" for job in jobs):
            raise OutcomeUnknown("no answer")
        return [Handle(job.id) for job in jobs]


async def begun(slow: Slow, intake: Intake, *groups: list[NewJob]) -> list[asyncio.Future[list[Handle[Any]]]]:
    """The first is being written, the others wait behind it."""
    first = asyncio.ensure_future(intake.put(groups[0]))
    while not slow.writes:
        await asyncio.sleep(0)
    rest = [asyncio.ensure_future(intake.put(group)) for group in groups[1:]]
    await asyncio.sleep(0)
    return [first, *rest]


async def test_what_arrives_meanwhile_is_one_write_and_everybody_gets_his_own():
    slow = Slow()
    groups = [jobs(1), jobs(2), jobs(3), jobs(1)]
    asked = await begun(slow, Intake(slow.put), *groups)
    slow.gate.set()
    answers = await asyncio.gather(*asked)
    assert slow.writes == [1, 6]
    assert [[handle.id for handle in answer] for answer in answers] == [[job.id for job in group] for group in groups]


async def test_one_that_does_not_fit_costs_the_others_nothing():
    slow = Slow()
    asked = await begun(slow, Intake(slow.put), jobs(1), jobs(2), jobs(1, "full"), jobs(1))
    slow.gate.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, list, QueueFull, list]
    assert slow.writes == [1, 4, 2, 1, 1]


async def test_a_lost_answer_is_everybodys():
    slow = Slow()
    asked = await begun(slow, Intake(slow.put), jobs(1), jobs(1), jobs(1, "away"))
    slow.gate.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, OutcomeUnknown, OutcomeUnknown]


async def test_who_gave_up_is_passed_over():
    slow = Slow()
    intake = Intake(slow.put)
    asked = await begun(slow, intake, jobs(1), jobs(1), jobs(1))
    asked[1].cancel()
    slow.gate.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, asyncio.CancelledError, list]
    assert len(await intake.put(jobs(1))) == 1


async def test_a_write_has_an_end():
    slow = Slow()
    asked = await begun(slow, Intake(slow.put), *(jobs(1) for _ in range(REQUESTS_PER_WRITE + 3)))
    slow.gate.set()
    await asyncio.gather(*asked)
    assert slow.writes == [1, REQUESTS_PER_WRITE, 2]


@pytest.mark.parametrize("room", [0, 7])
async def test_a_full_queue_takes_what_fits_of_many_at_once(client: httpx.AsyncClient, store: Store, room: int):
    await store.set_limit(Target("queue", "default"), Limit(max_depth=room), Actor())
    asked = [client.post("/jobs", json={"task": "charge"}) for _ in range(20)]
    asked += [client.post("/jobs", json={"task": "send_email", "payload": {"to": "a"}}) for _ in range(5)]
    answers = [response.status_code for response in await asyncio.gather(*asked)]
    assert answers[:20].count(201) == room
    assert answers[:20].count(429) == 20 - room
    assert answers[20:] == [201] * 5
    assert (await store.stats("default")).ready == room


async def test_a_posted_job_is_judged_once(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch):
    judged: list[str] = []
    faults, check = job_module._faults, Parameters.check

    def counted_faults(job: NewJob) -> Iterator[FieldError]:
        judged.append("fields")
        return faults(job)

    def counted_check(self: Parameters, body: bytes, longest: int) -> None:
        judged.append("payload")
        check(self, body, longest)

    monkeypatch.setattr(job_module, "_faults", counted_faults)
    monkeypatch.setattr(Parameters, "check", counted_check)
    answer = await client.post("/jobs", json={"task": "send_email", "payload": {"to": "a@b.c"}, "priority": 3})
    assert answer.status_code == 201, answer.text
    assert sorted(judged) == ["fields", "payload"]
