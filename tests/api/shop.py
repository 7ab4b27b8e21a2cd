"""The app of the servers in these tests; its store is $HAWSER_STORE."""

from typing import Any

from hawser import Hawser

app = Hawser()


@app.task(queue="mail")
async def send_email(to: str, template: str = "welcome") -> None: ...


@app.task
def charge(order: int = 0) -> None: ...


@app.task(queue="js")
def add(a: int, b: int) -> int: ...  # type: ignore[empty-body]  # a worker in another language runs it


@app.task
def anything(**values: Any) -> None: ...
