"""Takes the pictures of the dashboard that the documents show, from the running demo. `script/screenshots` runs it.

They tell one incident: a partner's server is down, its queue is paused, one dead job is tried when the server is back, and the
others follow.

With a folder as its second argument it takes every screen instead, light, dark and as a phone shows it, into that folder: to be
looked at after a change. With the URL of a store and a name it takes that store's last hour.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright

IMAGES = Path(__file__).parent / "images"
_WITHOUT_PATHS = """root => {
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) walk.currentNode.data = walk.currentNode.data.replaceAll(root, "…");
}"""
"""Where this machine keeps the sources is of no interest."""

BROWSERS = ("chromium-headless-shell", "chromium")


PAUSED, AFTERWARDS = 330, 45
"""Seconds: what failed before the pause must have left the rates, which are of five minutes; and the rest must have run."""

SCREENS = ("", "jobs", "dead", "queues", "queues/mail", "tasks", "schedules", "workers", "limits", "batches", "audit", "system")


def main(seconds: float, everything: Path | None) -> None:
    command = [sys.executable, "-m", "hawser.cli", "demo", "--no-open"]
    with tempfile.TemporaryDirectory() as folder:
        partner = Path(folder, "listens")
        environment = os.environ | {"HAWSER_DEMO_PARTNER": str(partner)}
        demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603  # a command of ours
        try:
            assert demo.stdout is not None
            [address] = re.findall(r"http://[^/]+", demo.stdout.readline())
            time.sleep(seconds)
            with opened_browser() as browser:
                if everything is None:
                    take_all(browser, address, partner)
                else:
                    take_every_screen(browser, address, everything)
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(60)


def take_store(url: str, name: str) -> None:
    """The last hour of a store that is in use, such as that of an experiment."""
    command = [sys.executable, "-m", "hawser.cli", "serve", "hawser.lab.app:app", "--port", "0", "--read-only"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"HAWSER_STORE": url})  # noqa: S603  # a command of ours
    try:
        assert server.stderr is not None
        address = next(found[0] for line in server.stderr if (found := re.findall(r"http://[\d.:]+", line)))
        with opened_browser() as browser:
            take(browser, f"{address}/ui/?minutes=60", name, "light")
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)


@contextmanager
def opened_browser() -> Iterator[Browser]:
    program = os.environ.get("HAWSER_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)))
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


def take_all(browser: Browser, address: str, partner: Path) -> None:
    """The incident from its first sign to its end; one job and the list beside it."""
    for theme in ("light", "dark"):
        take(browser, f"{address}/ui/?minutes=15", f"overview-{theme}", theme)
    take(browser, f"{address}/ui/?minutes=15", "phone", "light", width=390)
    take(browser, f"{address}/ui/queues/webhooks?minutes=15", "queue", "light")
    take(browser, f"{address}/ui/jobs", "jobs", "light")
    refused = of_partner(address)
    take(browser, f"{address}/ui/jobs/{refused['sample_id']}", "job", "light")
    httpx.post(f"{address}/admin/queues/webhooks/pause", json={"reason": "the partner's server is down"})
    time.sleep(PAUSED)
    take(browser, f"{address}/ui/queues/webhooks?minutes=15", "paused", "light")
    partner.touch()
    httpx.post(f"{address}/admin/queues/webhooks/resume", json={})
    take(browser, f"{address}/ui/dead/{refused['id'].replace(':', '%3A')}", "group", "light", then=try_one)
    replay(address, refused["id"])
    time.sleep(AFTERWARDS)
    take(browser, f"{address}/ui/queues/webhooks?minutes=15", "resumed", "light", height=1180)


def of_partner(address: str) -> dict[str, str]:
    """The group of dead letters that the incident is about."""
    groups: list[dict[str, str]] = httpx.get(f"{address}/dlq/groups").json()["groups"]
    return next(each for each in groups if each["task"] == "call_webhook")


def try_one(tab: Page) -> None:
    tab.get_by_role("button", name="Try one").click()
    expect(tab.locator(".operation.worked")).to_be_visible(timeout=30_000)
    expect(tab.locator(".toast")).to_have_count(0, timeout=30_000)


def replay(address: str, group: str) -> None:
    """The others, counted first, as the page does it."""
    chosen = {"filter": {"group": group}}
    counted = httpx.post(f"{address}/dlq/requeue", json={**chosen, "dry_run": True}).json()
    body = {**chosen, "token": counted["token"], "rate": 10, "reason": "the partner's server is back"}
    httpx.post(f"{address}/dlq/requeue", json=body, timeout=60).raise_for_status()


def take_every_screen(browser: Browser, address: str, folder: Path) -> None:
    """Also a job, and a group of dead ones."""
    largest = httpx.get(f"{address}/dlq/groups").json()["groups"][0]
    screens = [*SCREENS, f"jobs/{largest['sample_id']}", f"dead/{largest['id'].replace(':', '%3A')}"]
    for screen in screens:
        name = screen.partition("%3A")[0].replace("/", "-") or "overview"
        for theme in ("light", "dark"):
            take(browser, f"{address}/ui/{screen}", f"{name}-{theme}", theme, folder=folder)
        take(browser, f"{address}/ui/{screen}", f"{name}-phone", "light", width=390, folder=folder)


def take(
    browser: Browser,
    url: str,
    name: str,
    theme: str,
    width: int = 1280,
    height: int = 844,
    folder: Path = IMAGES,
    then: Callable[[Page], None] = lambda _: None,
) -> None:
    context = browser.new_context(
        locale="en-GB",
        timezone_id="UTC",
        color_scheme="dark" if theme == "dark" else "light",
        viewport={"width": width, "height": height},
    )
    tab = context.new_page()
    tab.goto(url)
    tab.wait_for_selector("h1, .status")
    then(tab)
    tab.wait_for_timeout(2_000)
    tab.evaluate(_WITHOUT_PATHS, str(Path(__file__).parents[1]))
    tab.screenshot(path=folder / f"{name}.png")
    context.close()


if __name__ == "__main__":
    if "://" in sys.argv[1]:
        take_store(sys.argv[1], sys.argv[2])
    else:
        to = Path(sys.argv[2]) if len(sys.argv) > 2 else None
        (to or IMAGES).mkdir(exist_ok=True)
        main(float(sys.argv[1]), to)
