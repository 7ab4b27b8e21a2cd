"""A service of one process: Starlette with a worker inside, and Hawser's HTTP API mounted. `uvicorn main:app`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from hawser import Hawser

jobs = Hawser(os.environ.get("SHOP_JOBS", "sqlite:///jobs.db"))


@jobs.task
async def resize(image: str) -> str:
    return f"{image} is small"


async def upload(request: Request) -> JSONResponse:
    handle = await resize.aenqueue(request.path_params["image"])
    return JSONResponse({"job": handle.id}, 202)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with jobs, jobs.worker(slots=8):
        yield


app = Starlette(
    routes=[Route("/images/{image}", upload, methods=["POST"]), Mount("/hawser", jobs.asgi(open=True))], lifespan=lifespan
)
