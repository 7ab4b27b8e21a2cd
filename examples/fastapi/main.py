"""A shop with FastAPI: `uvicorn main:api`, and beside it `hawser worker main:jobs`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from hawser import Hawser, HawserError, InvalidJob, Job, JobNotFound, QueueFull, StoreUnavailable

jobs = Hawser(os.environ.get("SHOP_JOBS", "sqlite:///jobs.db"))


@jobs.task(queue="mail", max_attempts=5)
async def send_receipt(order: int, to: str) -> str:
    return f"receipt of order {order} to {to}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with jobs:  # a wrong store shows at start, and connections are closed at the end
        yield


api = FastAPI(lifespan=lifespan)
api.mount("/hawser", jobs.asgi(open=True))  # the HTTP API, read and written without a key: on this machine only


async def the_jobs() -> Hawser:
    return jobs


Jobs = Annotated[Hawser, Depends(the_jobs)]


@api.post("/orders/{order}/receipt", status_code=202)
async def receipt(order: int, to: str, jobs: Jobs) -> dict[str, str]:
    handle = await jobs.aenqueue("send_receipt", {"order": order, "to": to}, key=f"receipt:{order}")
    return {"job": handle.id}


@api.get("/jobs/{id}")
async def job(id: str, jobs: Jobs) -> dict[str, object]:
    found: Job = await jobs.aget(id)
    return {"state": found.state, "result": found.result}


_STATUS = {InvalidJob: 422, JobNotFound: 404, QueueFull: 429, StoreUnavailable: 503}


@api.exception_handler(HawserError)
async def refused(_: Request, error: Exception) -> JSONResponse:
    """Errors as status codes. A full queue and a store that is away will pass: the client may try again."""
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    headers = {"Retry-After": "5"} if status in (429, 503) else None
    return JSONResponse({"detail": str(error)}, status, headers)
