"""A shop with Flask: `flask --app main run`, and beside it `hawser worker main:jobs`."""

import os

from flask import Flask
from flask.typing import ResponseReturnValue

from hawser import Hawser, HawserError, InvalidJob, JobNotFound, QueueFull, StoreUnavailable

jobs = Hawser(os.environ.get("SHOP_JOBS", "sqlite:///jobs.db"))


@jobs.task(queue="mail", max_attempts=5)
def send_receipt(order: int, to: str) -> str:
    return f"receipt of order {order} to {to}"


app = Flask(__name__)


@app.post("/orders/<int:order>/receipt/<to>")
def receipt(order: int, to: str) -> ResponseReturnValue:
    handle = send_receipt.using(key=f"receipt:{order}").enqueue(order=order, to=to)
    return {"job": handle.id}, 202


@app.get("/jobs/<id>")
def job(id: str) -> ResponseReturnValue:
    found = jobs.get(id)
    return {"state": found.state, "result": found.result}


_STATUS = {InvalidJob: 422, JobNotFound: 404, QueueFull: 429, StoreUnavailable: 503}


@app.errorhandler(HawserError)
def refused(error: HawserError) -> ResponseReturnValue:
    """Errors as status codes. A full queue and a store that is away will pass: the client may try again."""
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    return {"detail": str(error)}, status, {"Retry-After": "5"} if status in (429, 503) else {}
