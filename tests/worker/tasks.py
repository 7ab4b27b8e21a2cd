"""The app that the process tests run. Every start is written to a journal: one append, one line, whatever happens next."""

import asyncio
import ctypes
import os
import re
import signal
import time
from typing import Any

from hawser import Context, Fixed, Hawser, Limit, Snooze

app = Hawser()  # the store is $HAWSER_STORE
SOON = Fixed(every=0.05, jitter="none")


def note(word: str, ctx: Context) -> None:
    fd = os.open(os.environ["HAWSER_TEST_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{word} {ctx.job.id} {ctx.attempt} {ctx.lease} {os.getpid()}\n".encode())
    os.close(fd)


@app.task
async def nap(ctx: Context, seconds: float) -> None:
    note("start", ctx)
    await asyncio.sleep(seconds)
    note("end", ctx)


@app.task(group="line", limit=Limit(running=1, per_group=True, ordered=True), max_attempts=200, backoff=SOON)
async def in_line(ctx: Context, line: str, n: int) -> None:
    """One of a group whose order is kept; now and then it fails, or is put off."""
    note("start", ctx)
    await asyncio.sleep(0.05)  # the work: long enough to be seen beside others
    match (n + ctx.lease) % 5:
        case 0:
            raise ValueError(f"not yet, in {line}")
        case 1:
            raise Snooze(0.1)
    note("end", ctx)


@app.task
def thread_nap(ctx: Context, seconds: float) -> None:
    note("start", ctx)
    time.sleep(seconds)
    note("end", ctx)


@app.task(max_attempts=3)
async def block_the_loop(ctx: Context, seconds: float) -> None:
    note("start", ctx)
    time.sleep(seconds)


@app.task(max_attempts=3)
async def hold_the_gil(ctx: Context, seconds: float) -> None:
    """One C call that never lets go: a regular expression that backtracks for ever, more or less."""
    note("start", ctx)
    began, length = time.monotonic(), 20
    while time.monotonic() - began < seconds:
        re.match(r"(a+)+b", "a" * length)
        length += 1


@app.task(timeout=1.5, max_attempts=1)
async def block_past_the_timeout(ctx: Context) -> None:
    note("start", ctx)
    time.sleep(60)


@app.task(max_attempts=3, backoff=SOON)
async def poison(ctx: Context, kind: str) -> None:
    note("start", ctx)
    match kind:
        case "raise":
            raise ValueError("as always")
        case "os._exit":
            os._exit(7)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)


@app.task(max_attempts=1)
async def turn_on_the_loop(ctx: Context, kind: str) -> None:
    note("start", ctx)
    await asyncio.sleep(0.2)  # others start meanwhile
    match kind:
        case "stop":
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0)
        case "cancel":
            for task in asyncio.all_tasks():
                task.cancel()
            await asyncio.sleep(0)
        case "fork":
            if os.fork() == 0:
                note("child", ctx)


@app.task(max_attempts=3, backoff=SOON)
def thread_poison(ctx: Context) -> None:
    note("start", ctx)
    time.sleep(0.05)  # others start meanwhile
    os._exit(7)


@app.task(max_attempts=3, backoff=SOON, isolate=True, memory_limit=200_000_000)
def memory_bomb(ctx: Context) -> None:
    note("start", ctx)
    hoard = []
    while True:
        hoard.append(bytearray(10_000_000))


@app.task(isolate=True, timeout=1, max_attempts=1)
def isolated_hang(ctx: Context) -> None:
    note("start", ctx)
    while True:
        pass


@app.task(isolate=True)
def isolated_report(ctx: Context, seconds: float) -> int:
    note("start", ctx)
    ctx.progress("half way")
    end = time.monotonic() + seconds
    while time.monotonic() < end and not ctx.cancelled:
        time.sleep(0.02)
    return os.getpid()


@app.task(isolate=True, timeout=2, max_attempts=1)
def isolated_quick() -> None:
    time.sleep(1)  # the work, of a process of its own


@app.task(isolate=True, max_attempts=2, backoff=SOON)
def isolated_unwritable(ctx: Context) -> object:
    ctx.enqueue(nap.job(0.1))
    return object()


@app.task(timeout=1.5, max_attempts=1)
def thread_holds_the_gil(ctx: Context) -> None:
    note("start", ctx)
    ctypes.PyDLL(None).sleep(60)  # a C call that does not let go of the GIL


@app.task(isolate=True)
def isolated_fails() -> None:
    raise ValueError("says nothing of attempts or waits")


@app.task(isolate=True, max_attempts=2, backoff=SOON)
def isolated_steps(ctx: Context) -> list[str]:
    first = ctx.step("one", lambda: f"made after {ctx.job.crashes} crashes")
    if not ctx.job.crashes:
        os._exit(3)
    return [first, ctx.step("two", lambda: f"made after {ctx.job.crashes} crashes")]


@app.task(isolate=True, max_attempts=2, backoff=SOON)
def isolated_output(ctx: Context) -> None:
    ctx.write("again" if ctx.job.crashes else "before the crash")
    if not ctx.job.crashes:
        os._exit(3)
    ctx.write("the end")


@app.task
def isolated_part(n: int) -> int:
    return n


@app.task(isolate=True, max_attempts=1)
def isolated_waits(ctx: Context) -> list[Any]:
    said: Any = ctx.wait_for("isolated", timeout=60)
    parts: Any = ctx.gather(*(isolated_part.job(n) for n in range(2)))
    return [said, parts]
