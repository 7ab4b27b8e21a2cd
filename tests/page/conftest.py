"""A browser, a server with the dashboard, and a tab whose faults fail the test.

Without a browser these tests are skipped, visibly, with the command that brings one; HAWSER_BROWSER=require makes that a failure.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Literal, NamedTuple

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from starlette.applications import Starlette
from starlette.routing import Mount

from hawser import Hawser
from hawser.api.page import Dashboard
from tests.api.conftest import make_app

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
expect.set_options(timeout=20_000)
"""Milliseconds: a busy machine is slow."""

HOW = "no browser: run script/setup as root, or apt-get install chromium-headless-shell, or set HAWSER_BROWSER to one"


def find_browser() -> str | None:
    named = os.environ.get("HAWSER_BROWSER")
    if named and named != "require":
        return named
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module: while it is there, playwright has the event loop of this thread, and no asynchronous test can run."""
    path = find_browser()
    if path is None:
        if os.environ.get("HAWSER_BROWSER") == "require":
            pytest.fail(HOW)
        pytest.skip(HOW)
    missing = Dashboard().missing
    assert missing is None, f"the dashboard is not built: {missing}; run script/setup"
    with sync_playwright() as playwright:
        # Root cannot have the sandbox; all pages here are our own.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = playwright.chromium.launch(executable_path=path, args=arguments)
        yield found
        found.close()


class Served(NamedTuple):
    """An app and the address of its server."""

    app: Hawser
    url: str

    def ui(self, path: str = "") -> str:
        return f"{self.url}/ui/{path}"


@contextmanager
def served(app: Hawser, port: int = 0, under: str = "", **options: Any) -> Iterator[str]:
    """The address of a server of the app, in a thread of its own with its own connections; `under`: the prefix of a program
    that it is a part of."""
    api = app.asgi(**({"open": True, "upkeep": False} | options))
    whole = Starlette(routes=[Mount(under, api)]) if under else api
    lifespan: Literal["on", "off"] = "off" if under else "on"
    config = uvicorn.Config(whole, host="127.0.0.1", port=port, lifespan=lifespan, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive(), "the server did not start"
        address = server.servers[0].sockets[0].getsockname()
        yield f"http://127.0.0.1:{address[1]}{under}"
    finally:
        api.stopping.set()
        server.should_exit = True
        thread.join(15)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def place(store: str) -> Iterator[Served]:
    """A server of an app without jobs. Tests fill its store through an app of their own."""
    own = make_app(store)
    with served(make_app(store)) as url:
        yield Served(own, url)
    own.close()


def watched(context: BrowserContext, faults: list[str], allowed: tuple[str, ...] = ()) -> Page:
    """A tab that notes errors, refused scripts and styles, and requests to anybody else."""
    tab = context.new_page()
    tab.set_default_timeout(15_000)
    tab.on("pageerror", lambda error: faults.append(f"error: {error}"))

    def said(message: Any) -> None:
        if message.type == "error" and not any(each in message.text for each in allowed):
            faults.append(f"console: {message.text}")

    tab.on("console", said)

    def asked(request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1", "data:")):
            faults.append(f"foreign: {request.url}")

    tab.on("request", asked)
    return tab


@pytest.fixture(params=[None])
def allowed(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Errors of the console that a test makes on purpose; `@pytest.mark.parametrize("allowed", [(…,)])`."""
    return request.param or ()


@pytest.fixture
def tab(browser: Browser, place: Served, allowed: tuple[str, ...]) -> Iterator[Page]:
    """In English, so that numbers are written in one way; closed before the server goes."""
    faults: list[str] = []
    context = browser.new_context(locale="en-GB", viewport={"width": 1280, "height": 900})
    yield watched(context, faults, allowed)
    context.close()
    assert faults == []
