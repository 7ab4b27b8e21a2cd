"""The app of the process tests, with tasks in queues that not every worker serves."""

from tests.worker.tasks import app


@app.task(queue="images")
async def resize() -> None: ...


@app.task(queue="images")
async def crop() -> None: ...


__all__ = ["app"]
