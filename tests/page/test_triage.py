"""Five thousand dead letters in a few groups: one is cured, tried and replayed at a rate, the replay of another stops."""

from __future__ import annotations

import asyncio
import json
import time
from threading import Event, Thread
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from hawser.outcome import Dead, Done, Failure
from hawser.store import Settlement, Share
from tests.api.conftest import make_app
from tests.page.conftest import Served
from tests.page.test_screens import run


class Cured:
    """A worker for whose jobs the failures are cured that it names; all others die again."""

    def __init__(self, store: str, cured: str) -> None:
        self._app = make_app(store)
        self._cured = cured
        self._stop = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._work()), daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(15)

    async def _work(self) -> None:
        store = await self._app.store()
        while not self._stop.is_set():
            claimed = await store.claim([Share("mail")], 100, "w1@vm1", 60.0)
            await store.settle([Settlement(job.id, job.lease, self._outcome(json.loads(job.body)["to"])) for job in claimed])
            await asyncio.sleep(0.05)
        await self._app.aclose()

    def _outcome(self, fault: str) -> Done | Dead:
        return Done() if fault == self._cured else Dead(Failure(f"{fault}: it died", ""))


FAULTS = ("ConnectionError", "TimeoutError", "KeyError", "ValueError", "OSError", "ZeroDivisionError")


def test_five_thousand_dead_letters_are_triaged(tab: Page, place: Served, store: str):
    async def die() -> None:
        app_store = await place.app.store()
        task = place.app.tasks["send_email"]
        for first in range(0, 5000, 1000):
            await place.app.aenqueue_many([task.job(to=FAULTS[each % 6]) for each in range(first, first + 1000)])
            claimed = await app_store.claim([Share("mail")], 1000, "w1@vm1", 60.0)
            failures = [Failure(f"{json.loads(job.body)['to']}: it died", "") for job in claimed]
            settlements = zip(claimed, failures, strict=True)
            await app_store.settle([Settlement(job.id, job.lease, Dead(failure)) for job, failure in settlements])

    run(place.app, die)
    tab.goto(place.ui("dead"))
    rows = tab.get_by_role("table", name="Groups of dead letters").locator("tbody tr")
    expect(rows).to_have_count(6)
    expect(tab.locator("main")).to_contain_text("5,000 jobs in 6 groups")
    dialog = tab.get_by_role("dialog")
    with Cured(store, "TimeoutError"):
        tab.get_by_role("link", name="TimeoutError").click()
        tab.get_by_role("button", name="Try one").click()
        expect(tab.locator(".operation")).to_contain_text("worked")
        tab.get_by_role("button", name="Replay the others").click()
        expect(dialog).to_contain_text("Run again 833 jobs?")
        dialog.get_by_label("At most this many a second").fill("400")
        dialog.get_by_role("button", name="Run again").click()
        expect(tab.locator("main")).to_contain_text("No dead job is left in this group.", timeout=30_000)
        tab.goto(place.ui("dead"))
        expect(rows).to_have_count(5)
        tab.get_by_role("link", name="KeyError").click()
        tab.get_by_role("button", name="Replay all").click()
        dialog.get_by_label("At most this many a second").fill("2")
        dialog.get_by_role("button", name="Run again").click()
        expect(tab.locator(".operation")).to_contain_text("requeue")
        tab.goto("about:blank")  # nobody looks any more
        stopped = ended(place, "stopped")
        assert 10 <= stopped["done"] <= 300
        assert "died again" in stopped["error"]
        tab.goto(place.ui("dead"))
        tab.get_by_role("link", name="ValueError").click()
        tab.get_by_role("button", name="Replay all").click()
        dialog.get_by_role("button", name="Run again").click()
        expect(tab.locator(".operation.stopped")).to_contain_text("stopped by itself", timeout=30_000)


def ended(place: Served, state: str) -> Any:
    """The operation that has ended so, when it has."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [each for each in httpx.get(f"{place.url}/operations").json()["operations"] if each["state"] == state]
        if found:
            return found[0]
        time.sleep(0.2)
    raise AssertionError(f"no operation has {state}")
