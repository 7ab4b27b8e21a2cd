"""Uses that a type checker must refuse: every marked line, and no other. Run by tests/unit/test_typing.py, never imported."""

from __future__ import annotations

from hawser import Context, Every, Hawser, SyncContext

app = Hawser("memory://")
Hawser("memory://", max_payload="64k")  # error: arg-type
Hawser("memory://", colour="red")  # error: call-arg


app.task(schedule="@daily")  # error: call-overload
app.schedules.create("s", "nothing", "@daily")  # error: arg-type
app.schedules.create("s", "nothing", Every(hours="1"))  # error: arg-type
app.schedules.create("s", "nothing", Every(hours=1, missed="later"))  # error: arg-type
app.schedules.pause(1)  # error: arg-type


@app.task(queue="mail")
async def send_email(to: str, template: str = "welcome") -> None: ...


@app.task
def resize(ctx: Context, image_id: str, sizes: list[int]) -> dict[str, int]:
    ctx.enqueue("send_email")  # error: arg-type
    ctx.enqueue(send_email.enqueue("a"))  # error: arg-type
    ctx.extend("5")  # error: arg-type
    return {image_id: sizes[0]}


@app.task()
async def import_rows(ctx: Context, *, path: str) -> int:
    return len(path) + ctx.attempt


@app.task
def nothing() -> None: ...


@app.task
def an_object(value: object, n: int) -> None: ...


send_email.enqueue()  # error: call-overload
send_email.enqueue(1)  # error: call-overload
send_email.enqueue("a", "b", "c")  # error: call-overload
send_email.enqueue(too="a")  # error: call-overload
send_email.enqueue("a", template=5)  # error: call-overload
send_email.enqueue("a", cc="b")  # error: call-overload
send_email.job(5)  # error: call-overload
send_email.using(queue="x").enqueue(5)  # error: call-overload
send_email.using(queue=5)  # error: arg-type
send_email.using(eta=5)  # error: call-arg
send_email.using(key_ttl="never")  # error: arg-type
send_email(5)  # error: arg-type, unused-coroutine

resize.enqueue("a")  # error: call-arg
resize.enqueue("a", ["1"])  # error: list-item
resize.enqueue(Context, "a", [1])  # error: arg-type, call-arg
resize("a")  # error: call-arg
import_rows.enqueue("a")  # error: call-overload
import_rows.enqueue(path=5)  # error: call-overload
nothing.enqueue(1)  # error: call-arg
an_object.enqueue("x")  # error: call-arg
an_object.enqueue("x", "y")  # error: arg-type

nothing.job().after(5)  # error: arg-type
nothing.job().after("a", on="dead")  # error: arg-type
nothing.using(after=5)  # error: arg-type

app.enqueue("send_email", ["a"])  # error: arg-type
app.enqueue("send_email", {}, eta=5)  # error: call-arg
app.enqueue_many(["send_email"])  # error: list-item
app.enqueue_many([send_email.enqueue("a")])  # error: list-item
app.task(queue=5)  # error: call-overload
app.task(retries=5)  # error: call-overload
app.get(5)  # error: arg-type
app.find(colour="red")  # error: call-arg
app.pause("mail")  # error: call-arg
app.set_limit("mail")  # error: call-arg


async def main(ctx: Context, sync: SyncContext) -> None:
    await ctx.wait_for("packed")  # error: call-overload
    sync.wait_for("packed", into=int)  # error: call-overload
    await send_email.aenqueue(to=5)  # error: call-overload
    await resize.aenqueue("a")  # error: call-arg
    await app.aenqueue(5)  # error: arg-type
