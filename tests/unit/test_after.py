"""Jobs that wait for others, as an app makes them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hawser import Context, Hawser, InvalidJob
from hawser.job import NewJob
from hawser.value.ids import new_id
from hawser.value.upstream import MAX_UPSTREAM


def make_app(url: str) -> Hawser:
    app = Hawser(url)
    ran: list[str] = []

    @app.task
    def step(name: str) -> str:
        ran.append(name)
        return name

    @app.task
    def fan_out(ctx: Context) -> None:
        first = step.job("child")
        ctx.enqueue(first, step.job("after child").after(first))

    app.on_start(lambda: ran)
    app.ran = ran  # type: ignore[attr-defined]
    return app


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Hawser:
    return make_app("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")


async def test_a_chain_and_a_diamond_run_in_order(app: Hawser):
    step: Any = app.tasks["step"]
    async with app:
        top = step.job("top")
        left, right = step.job("left").after(top), step.job("right").after(top)
        *_, last = await app.aenqueue_many([top, left, right, step.job("bottom").after(left, right)])
        behind = await step.using(after=[last]).aenqueue("behind")
        held = (await app.afind(state="held")).jobs
        assert {job.id for job in held} == {left.id, right.id, last.id, behind.id}
        async with app.worker():
            assert await behind.wait(30) == "behind"
    ran: list[str] = app.ran  # type: ignore[attr-defined]
    assert (ran[0], set(ran[1:3]), ran[3:]) == ("top", {"left", "right"}, ["bottom", "behind"])


async def test_a_handler_may_enqueue_jobs_that_wait(app: Hawser):
    async with app, app.worker():
        await (await app.tasks["fan_out"].aenqueue()).wait(30)
        ran: list[str] = app.ran  # type: ignore[attr-defined]
        async with asyncio.timeout(30):
            while ran != ["child", "after child"]:
                await asyncio.sleep(0.01)


async def test_what_cannot_be_waited_for_is_named(app: Hawser):
    step: Any = app.tasks["step"]
    async with app:
        unknown = new_id()
        with pytest.raises(InvalidJob, match=f"after: this store does not have {unknown}"):
            await app.aenqueue_many([step.job("a").after(unknown)])
        for wrong in (5, "no id", "", object()):
            with pytest.raises(InvalidJob, match="is not a job; give a new job, a handle or the id of a job"):
                step.job("a").after(wrong)
        with pytest.raises(InvalidJob, match=r"after: .* is not a list of jobs"):
            step.using(after=unknown)
        with pytest.raises(InvalidJob, match="on: 'dead' is neither 'done' nor 'ended'"):
            step.job("a").after(unknown, on="dead")
        with pytest.raises(InvalidJob, match="a job waits in one way for all its jobs"):
            step.job("a").after(unknown).after(new_id(), on="ended")
        with pytest.raises(InvalidJob, match="at most 200,000"):
            NewJob(task="step", body=b"{}").after(*[new_id() for _ in range(MAX_UPSTREAM + 1)])
        own = step.job("a")
        with pytest.raises(InvalidJob, match="would wait for itself"):
            await app.aenqueue_many([own.after(own)])
        assert (await app.astats()).held == 0


async def test_the_order_of_a_call_is_judged_before_anything_is_written(app: Hawser):
    step: Any = app.tasks["step"]
    async with app:
        one, other = step.job("one"), step.job("other")
        with pytest.raises(InvalidJob, match="put what is waited for in front"):
            await app.aenqueue_many([one.after(other), other])
        assert (await app.afind()).jobs == []


async def test_a_job_of_a_group_may_wait_for_others(app: Hawser):
    step: Any = app.tasks["step"]
    async with app:
        first = step.job("a")
        second = step.using(group="acme").job("b").after(first)
        third = step.using(group="acme", after=[first.id]).job("c")
        await app.aenqueue_many([first, second, third])
        assert (await app.astats()).held == 2
        assert {job.group for job in (await app.afind(group="acme")).jobs} == {"acme"}
