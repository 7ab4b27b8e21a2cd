"""What the dashboard costs the browser: first paint, first figures, a refresh with many rows behind it, and a tab at rest.

    PYTHONPATH=. python benchmarks/page.py --seconds 15

The store has 10,000 jobs, 1,000 queues, 500 groups of dead jobs, 600 schedules and 300 workers, while ten jobs a second come in.
Work of the browser's main thread is read from its own counters (`Performance.getMetrics`); first paint and first figures are
times on the clock, the best and the middle of nine loads. A busy machine makes all of them longer. Needs a browser, as
`tests/page` does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from playwright.sync_api import Browser, Page, Playwright, sync_playwright
from tests.api.conftest import make_app
from tests.page.conftest import find_browser, served
from tests.page.test_large import fill_large
from tests.page.test_screens import fill, run

LOADS: Final = 9
SCREENS: Final = ("", "jobs", "queues", "dead", "schedules", "workers")


def task_seconds(session: Any) -> float:
    """Seconds of work of the page's main thread so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def keep_busy(store: str, stop: Event) -> None:
    app = make_app(store)
    while not stop.wait(0.1):
        app.enqueue("anything", {})
    app.close()


def new_tab(browser: Browser) -> tuple[Page, Any]:
    tab = browser.new_context(locale="en-GB", viewport={"width": 1280, "height": 900}).new_page()
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable")
    return tab, session


def first_load(browser: Browser, url: str) -> None:
    paints, figures = [], []
    for _ in range(LOADS):
        tab, _session = new_tab(browser)
        began = time.monotonic()
        tab.goto(f"{url}/ui/", wait_until="commit")
        tab.locator("a.figure .value").first.wait_for()
        figures.append(time.monotonic() - began)
        paints.append(tab.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000)
        tab.context.close()
    for name, times in (("first paint", paints), ("first figures", figures)):
        print(f"{name}: best {min(times) * 1000:.0f} ms, middle {statistics.median(times) * 1000:.0f} ms of {LOADS}")


def refreshes(browser: Browser, url: str, screen: str, seconds: float) -> None:
    tab, session = new_tab(browser)
    asked: list[str] = []
    tab.goto(f"{url}/ui/{screen}")
    tab.locator("tbody tr, a.figure").first.wait_for()
    tab.wait_for_timeout(3_000)
    tab.on("request", lambda request: asked.append(request.url))
    before = task_seconds(session)
    tab.wait_for_timeout(seconds * 1_000)
    spent = task_seconds(session) - before
    rows = tab.locator("tbody tr").count()
    print(
        f"{screen or 'overview'}: {rows} rows drawn, {len(asked)} requests in {seconds:g} s, "
        f"{spent / max(1, len(asked)) * 1000:.1f} ms a request, {spent / seconds:.2%} of a core"
    )
    tab.get_by_role("button", name="Live").click()
    tab.wait_for_timeout(1_000)
    asked.clear()
    before = task_seconds(session)
    tab.wait_for_timeout(seconds * 1_000)
    print(f"   paused: {len(asked)} requests, {(task_seconds(session) - before) / seconds:.2%} of a core")
    tab.context.close()


def launched(playwright: Playwright) -> Browser:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=find_browser(), args=arguments)


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        small = make_app(f"sqlite:///{Path(folder)}/small.db")
        fill(small)
        with served(small) as url, sync_playwright() as playwright:
            browser = launched(playwright)
            print("a few queues and jobs:")
            first_load(browser, url)
            browser.close()
        store = f"sqlite:///{Path(folder)}/jobs.db"
        app = make_app(store)
        run(app, lambda: fill_large(app))
        stop = Event()
        busy = Thread(target=keep_busy, args=(store, stop), daemon=True)
        with served(make_app(store)) as url, sync_playwright() as playwright:
            browser = launched(playwright)
            print("10,000 jobs, 1,000 queues:")
            first_load(browser, url)
            busy.start()
            for screen in SCREENS:
                refreshes(browser, url, screen, seconds)
            stop.set()
            busy.join(10)
            browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    main(parser.parse_args().seconds)
