"""An app with hooks, for real worker processes. What they do is written to the file in HAWSER_TEST_NOTES."""

import logging
import os

from hawser import Context, Hawser

app = Hawser()  # the store is $HAWSER_STORE


def note(*words: object) -> None:
    fd = os.open(os.environ["HAWSER_TEST_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (" ".join(map(str, words)) + "\n").encode())
    os.close(fd)


@app.on_start
async def pool(app: Hawser) -> str:
    note("start", os.getpid())
    return f"pool-{os.getpid()}"


@app.on_stop(pool)
async def close(pool: str) -> None:
    note("stop", os.getpid(), pool)


@app.around
async def traced(ctx: Context, call):
    note("around", ctx.job.task)
    return await call()


@app.task
async def on_loop(ctx: Context) -> str:
    logging.getLogger("shop").warning("on the loop", extra={"customer": 42})
    return str(ctx.state["pool"])


@app.task
def in_thread(ctx: Context) -> str:
    logging.getLogger("shop").warning("in a thread", extra={"customer": 42})
    return str(ctx.state["pool"])


@app.task(isolate=True)
async def apart(ctx: Context) -> str:
    logging.getLogger("shop").warning("apart", extra={"customer": 42})
    return str(ctx.state["pool"])
