"""Uses that a type checker must accept. Run by tests/unit/test_typing.py, never imported."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import msgspec

from hawser import (
    Context,
    Cron,
    Drop,
    Every,
    Exponential,
    Handle,
    Hawser,
    Job,
    NewJob,
    Retention,
    Schedule,
    State,
    SyncContext,
    Task,
)
from hawser.handle import TypedJob
from hawser.store import Emitted


class Paid(msgspec.Struct):
    cents: int


app = Hawser("memory://", max_payload=1024, retention=Retention(done=60))


@app.task(name="send_email", queue="mail", priority=5, max_attempts=5, timeout=30, backoff=Exponential(base=30, cap=3600))
async def send_email(to: str, template: str = "welcome") -> None:
    raise Drop(to + template)


@app.task
def resize(ctx: Context, image_id: str, sizes: list[int]) -> dict[str, int]:
    ctx.enqueue(send_email.job(to="a"), send_email.using(delay=5).job("b"))
    ctx.progress({"done": 1})
    ctx.extend()
    ctx.extend(timedelta(seconds=5))
    ctx.log.info("resized %s", image_id)
    assert_type(ctx.attempt, int)
    assert_type(ctx.lease, int)
    assert_type(ctx.cancelled, bool)
    return {image_id: sizes[0]}


@app.task(timeout=timedelta(minutes=5), isolate=True, concurrency=2, confirm_replay=True, tags=["a"], retention=None)
async def import_rows(ctx: Context, *, path: str, limit: int | None = None) -> int:
    return len(path) + ctx.attempt


@app.task(schedule=Cron("@daily", tz="Europe/Berlin", missed="all", jitter=timedelta(seconds=5), payload={"day": 1}))
def nightly(day: int) -> None: ...


@app.task(schedule={"often": Every(minutes=5, overlap="skip"), "seldom": Every(days=7)})
async def refresh() -> None: ...


@app.task()
def nothing() -> None: ...


@app.task
def anything(payload: Any, *, more: object = None) -> None: ...


@app.task
def an_object(value: object, n: int) -> None: ...


@app.task
def open_ended(a: int, **rest: str) -> None: ...


def timed(fn: Callable[[int], str]) -> Callable[[int], str]:
    return fn


@app.task
@timed
def decorated(n: int) -> str:
    return str(n)


assert_type(send_email.enqueue("a"), Handle[None])
assert_type(send_email.enqueue(to="a", template="b"), Handle[None])
assert_type(resize.enqueue("a", [1]), Handle[dict[str, int]])
assert_type(resize.enqueue(image_id="a", sizes=[1]).result(timeout=5), dict[str, int])
assert_type(import_rows.enqueue(path="a").result(), int)
assert_type(import_rows.enqueue(path="a", limit=None), Handle[int])
assert_type(nothing.enqueue(), Handle[None])
assert_type(open_ended.enqueue(1, b="x"), Handle[None])
assert_type(decorated.using(priority=1).enqueue(1), Handle[str])
assert_type(an_object.enqueue("x", 1), Handle[None])
anything.enqueue({"a": 1}, more=5)

assert_type(send_email.job("a"), TypedJob[None])
new: NewJob = send_email.job("a").after("01a1ec9a-22e2-72e2-b051-38e2f73b8a83")
assert_type(resize("a", [1]), dict[str, int])
assert_type(decorated(1), str)
assert_type(nothing(), None)
running: Coroutine[Any, Any, int] = import_rows(path="a")

handle = send_email.using(queue="bulk", priority=1, delay=60, run_at=None, key="welcome:42", key_ttl=0, max_attempts=3).enqueue(
    to="x"
)
send_email.using(run_at=datetime.now(UTC), key="k", key_ttl="forever", timeout=5, tags=("a",), parent_id=handle.id)
send_email.using(delay=timedelta(seconds=5), key="k", key_ttl=timedelta(days=1)).using(priority=1).enqueue("a")

handles = app.enqueue_many([send_email.job(to=t) for t in ("a", "b")])
assert_type(handles, list[Handle[Any]])
assert_type(app.enqueue("send_email", {"to": "x"}, queue="mail", delay=5), Handle[Any])
assert_type(handle.id, str)
assert_type(handle.created, bool)
job = app.get(handle.id)
assert_type(job, Job)
assert_type(job.state, State)
assert_type(app.find(state="dead", queue="mail", limit=5).jobs, list[Job])
app.find(state=State.DEAD, since=datetime.now(UTC), after=None)
app.cancel(handle.id)
app.requeue(handle.id, confirm=True)
app.replay(handle.id, {"to": "y"}, reason="typo", priority=9)
app.discard(handle.id, reason="known")
app.pause(queue="mail", reason="deploy", until=None, by="ada")
assert_type(app.resume(task="send_email"), bool)
app.clear_limit(queue="mail")
assert_type(app.stats("mail").ready, int)


async def main() -> None:
    assert_type(await send_email.aenqueue(to="a"), Handle[None])
    assert_type(await resize.aenqueue("a", sizes=[1]), Handle[dict[str, int]])
    assert_type(await (await import_rows.aenqueue(path="a")).wait(timeout=5), int)
    assert_type(await (await decorated.aenqueue(1)).wait(), str)
    assert_type(await import_rows(path="a"), int)
    assert_type(await app.aenqueue("send_email", {"to": "x"}, key="k"), Handle[Any])
    assert_type(await app.aenqueue_many([nothing.job()]), list[Handle[Any]])
    assert_type(await app.aget("x"), Job)
    async with app as opened:
        assert_type(opened, Hawser)


def takes_any_task(task: Task[..., Any]) -> str:
    return task.name


takes_any_task(send_email)
with app as opened:
    assert_type(opened, Hawser)


async def schedules() -> None:
    assert_type(app.schedules.create("s", "nightly", Every(hours=1)), Schedule)
    assert_type(await app.schedules.apause("s", reason="why"), Schedule)
    assert_type(app.schedules.run("s"), str)
    assert_type(app.schedules.preview("s", 3), Sequence[datetime])
    assert_type(app.schedules.list(), Sequence[Schedule])
    assert_type(app.get("x").tick, datetime | None)


async def waits_in_the_middle(ctx: Context) -> None:
    assert_type(await ctx.wait_for("packed", timeout=5, into=Paid), Paid)
    assert_type(await ctx.wait_for("packed", timeout=None), Any)
    assert_type(await ctx.gather(import_rows.job(path="a"), import_rows.job(path="b"), name="rows"), list[int])
    assert_type(await app.aemit("packed", {"parcels": 2}), Emitted)
    assert_type(app.emit("packed", keep=timedelta(days=1)), Emitted)


async def debit(con: object) -> int:
    return len(str(con))


async def steps_inside(ctx: Context, pool: object) -> None:
    assert_type(await ctx.step("debit", debit, inside=pool), int)
    assert_type(ctx.step("credit", lambda con: len(str(con)), inside=pool), int)
    ctx.write({"turn": 1})
    assert_type([chunk.number for chunk in app.output("x", after=2)], list[int])


def waits_in_a_thread(ctx: SyncContext) -> None:
    assert_type(ctx.wait_for("packed", timeout=timedelta(days=2), into=Paid), Paid)
    assert_type(ctx.gather(import_rows.job(path="a")), list[int])
    ctx.sleep("a", days=2)


app.task(waits_in_the_middle)
app.task(waits_in_a_thread)

waits: NewJob = nothing.job().after(send_email.job("a"), handle, handle.id, on="ended")
assert_type(nothing.using(after=[handle, handle.id, waits]).enqueue(), Handle[None])
