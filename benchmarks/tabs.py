"""What open tabs of the dashboard cost the server: its share of a core with none, one and ten, while jobs come in.

    python benchmarks/tabs.py --seconds 15

Ten jobs a second are enqueued and done over HTTP meanwhile, and what that costs without a tab is taken off. Needs a browser, as
`tests/page` does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread
from typing import Final

from playwright.sync_api import sync_playwright
from tests.page.conftest import find_browser

from hawser import Hawser
from hawser.outcome import Done
from hawser.store import Settlement, Share

TICKS: Final = os.sysconf("SC_CLK_TCK")
APP: Final = """
from hawser import Hawser
app = Hawser({url!r})

@app.task
def work(row: int) -> None: ...
"""


def cpu(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def keep_busy(url: str, stop: Event) -> None:
    async def work() -> None:
        app = Hawser(url)
        app.task(name="work")(lambda row: None)
        store = await app.store()
        row = 0
        while not stop.is_set():
            await app.aenqueue("work", {"row": (row := row + 1)})
            claimed = await store.claim([Share("default")], 10, "w1", 60.0)
            await store.settle([Settlement(job.id, job.lease, Done()) for job in claimed])
            await asyncio.sleep(0.1)
        await app.aclose()

    asyncio.run(work())


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/jobs.db"
        Path(folder, "busy_shop.py").write_text(APP.format(url=url))
        stop = Event()
        busy = Thread(target=keep_busy, args=(url, stop), daemon=True)
        busy.start()
        time.sleep(1)
        command = [sys.executable, "-m", "hawser.cli", "serve", "busy_shop:app", "--port", "0"]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:  # ours
            assert server.stderr is not None
            address = next(found[0] for line in server.stderr if (found := re.findall(r"http://127.0.0.1:\d+", line)))
            Thread(target=server.stderr.read, daemon=True).start()
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=find_browser(), args=["--no-sandbox"] if os.geteuid() == 0 else []
                )
                context = browser.new_context(locale="en-GB")
                asked: list[str] = []
                context.on("request", lambda request: asked.append(request.url))
                pages = [context.new_page()]
                before = 0.0
                for tabs in (0, 1, 10):
                    while len(context.pages) < tabs:
                        pages.append(context.new_page())
                    for page in pages[:tabs]:
                        page.goto(f"{address}/ui/")
                        page.wait_for_selector("a.figure")
                    pages[0].wait_for_timeout(3_000)
                    asked.clear()
                    began, used = time.monotonic(), cpu(server.pid)
                    pages[0].wait_for_timeout(seconds * 1_000)
                    share = (cpu(server.pid) - used) / (time.monotonic() - began)
                    before = share if tabs == 0 else before
                    print(
                        f"{tabs:2}: {share:.2%} of a core, {share - before:.2%} for tabs, {len(asked) / seconds:.2f} requests/s"
                    )
                browser.close()
            server.terminate()
        stop.set()
        busy.join(10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    main(parser.parse_args().seconds)
