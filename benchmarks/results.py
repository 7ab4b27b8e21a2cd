"""How long behind the end of a job, in another process, `handle.result` has it; and how often waiters read.

    python benchmarks/results.py sqlite:////tmp/results.db --jobs 200
    python benchmarks/results.py postgresql://localhost/jobs --jobs 200 --waiters 500

Prints one JSON object. The jobs last from `--shortest` to `--longest` milliseconds; each is awaited by itself, so a wait that has
grown long is met as well. Then as many waiters as asked wait for jobs that do not end, for five seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from hawser import Hawser, ResultTimeout

app = Hawser()


@app.task
async def last(seconds: float) -> float:
    """Returns when it ended: by the clock of this machine, which all processes share."""
    await asyncio.sleep(seconds)
    return time.time()


async def delays(jobs: int, shortest: float, longest: float) -> list[float]:
    """Seconds from the end of each job to the return of the call that waited for it, in order."""
    found = []
    for _ in range(jobs):
        handle = await last.aenqueue(random.uniform(shortest, longest))
        ended = await handle.wait(timeout=30)
        found.append(time.time() - ended)
    return sorted(found)


async def reads(waiters: int, seconds: float) -> float:
    """Reads a second while so many coroutines of one process wait."""
    store, count = await app.store(), 0
    ended = store.ended

    async def counted(ids: Any) -> Any:
        nonlocal count
        count += 1
        return await ended(ids)

    store.ended = counted  # type: ignore[method-assign]
    handles = await app.aenqueue_many([last.using(delay=3600).job(0.0) for _ in range(waiters)])
    await asyncio.sleep(0.1)

    async def waited(handle: Any) -> None:
        with suppress(ResultTimeout):
            await handle.wait(timeout=seconds + 2)

    waiting = [asyncio.ensure_future(waited(handle)) for handle in handles]
    await asyncio.sleep(2)  # the waits have grown to their longest
    before = count
    await asyncio.sleep(seconds)
    read = (count - before) / seconds
    await asyncio.gather(*waiting)
    return read


async def measure(args: argparse.Namespace) -> dict[str, object]:
    app.use_store(args.url)
    await app.aopen()
    worker = subprocess.Popen(
        [sys.executable, "-m", "hawser.cli", "worker", "results:app", "--log-level", "error"],
        env={**os.environ, "HAWSER_STORE": args.url, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))},
    )
    try:
        await (await last.aenqueue(0.0)).wait(timeout=60)
        found = {
            f"{low * 1000:.0f}-{high * 1000:.0f}": await delays(args.jobs, low, high)
            for low, high in ((0.0, 0.1), (args.shortest / 1000, args.longest / 1000))
        }
        rate = await reads(args.waiters, 5.0)
    finally:
        worker.terminate()
        worker.wait(30)
        await app.aclose()
    return {
        "store": args.url.partition(":")[0],
        "behind_the_end_ms_p50_p95": {
            name: [round(1000 * each[int(share * len(each))], 1) for share in (0.5, 0.95)] for name, each in found.items()
        },
        "waiters": args.waiters,
        "reads_per_s": rate,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--shortest", type=float, default=500)
    parser.add_argument("--longest", type=float, default=1500)
    parser.add_argument("--waiters", type=int, default=500)
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    sys.modules["results"] = sys.modules["__main__"]
    main()
