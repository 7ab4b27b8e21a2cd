"""A small app for the compose file; put yours in its place."""

from hawser import Every, Hawser

app = Hawser()  # the store is $HAWSER_STORE


@app.task(queue="mail", max_attempts=5, timeout=30)
async def send_email(to: str) -> str:
    return f"sent to {to}"


@app.task(schedule=Every(minutes=1))
def tick() -> None: ...
