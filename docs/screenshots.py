"""Takes the pictures of the dashboard that the documents show, from the running demo. `script/screenshots` runs it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent / "images"
BROWSERS = ("chromium-headless-shell", "chromium")


def main(seconds: float) -> None:
    command = [sys.executable, "-m", "hawser.cli", "demo", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:  # noqa: S603  # a command of ours
        try:
            assert demo.stdout is not None
            [address] = re.findall(r"http://[^/]+", demo.stdout.readline())
            time.sleep(seconds)
            with sync_playwright() as playwright:
                program = os.environ.get("HAWSER_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)))
                arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
                browser = playwright.chromium.launch(executable_path=program, args=arguments)
                take_all(browser, address)
                browser.close()
        finally:
            demo.send_signal(signal.SIGINT)


def take_all(browser: Browser, address: str) -> None:
    """The mail server goes down at the end: the queue's page says so."""
    largest = httpx.get(f"{address}/dlq/groups").json()["groups"][0]
    for theme in ("light", "dark"):
        take(browser, f"{address}/ui/?minutes=15", f"overview-{theme}", theme)
    take(browser, f"{address}/ui/?minutes=15", "phone", "light", width=390)
    take(browser, f"{address}/ui/jobs", "jobs", "light")
    take(browser, f"{address}/ui/jobs/{largest['sample_id']}", "job", "light")
    take(browser, f"{address}/ui/dead/{largest['id'].replace(':', '%3A')}", "group", "light")
    httpx.post(f"{address}/admin/queues/mail/pause", json={"reason": "the mail server is down"})
    time.sleep(15)
    take(browser, f"{address}/ui/queues/mail?minutes=15", "queue", "light")
    httpx.post(f"{address}/admin/queues/mail/resume", json={})


def take(browser: Browser, url: str, name: str, theme: str, width: int = 1280) -> None:
    context = browser.new_context(
        locale="en-GB",
        timezone_id="UTC",
        color_scheme="dark" if theme == "dark" else "light",
        viewport={"width": width, "height": 844},
    )
    tab = context.new_page()
    tab.goto(url)
    tab.wait_for_selector("h1, .status")
    tab.wait_for_timeout(2_000)
    tab.screenshot(path=IMAGES / f"{name}.png")
    context.close()


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    main(float(sys.argv[1]))
