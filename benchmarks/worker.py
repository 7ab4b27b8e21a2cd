"""What a job that does nothing costs one worker process: drain rate, and CPU of the whole process per job.

    python benchmarks/worker.py memory:// --jobs 200000
    python benchmarks/worker.py sqlite:////tmp/worker.db --jobs 100000

Prints one JSON object. The worker is embedded: its keeper is a thread here, so all of its cost is counted.
"""

import argparse
import asyncio
import json
import time

from hawser.lab.app import app, noop
from hawser.supervisor.embedded import embedded
from hawser.worker.loop import run_loop
from hawser.worker.options import checked


async def measure(url: str, jobs: int, slots: int) -> dict[str, object]:
    app.use_store(url)
    store = await app.store()
    for start in range(0, jobs, 1000):
        await app.aenqueue_many([noop.job(seq, "user@example.com") for seq in range(start, min(start + 1000, jobs))])
    stop = asyncio.Event()
    cpu, began = time.process_time(), time.perf_counter()
    worker = asyncio.ensure_future(embedded(app, checked(slots=slots), stop, spec=None))
    while (await store.stats()).done < jobs:
        await asyncio.sleep(0.02)
    took, used = time.perf_counter() - began, time.process_time() - cpu
    stop.set()
    await worker
    await app.aclose()
    return {
        "store": url.partition(":")[0],
        "jobs": jobs,
        "slots": slots,
        "drain_per_s": round(jobs / took),
        "cpu_us_per_job": round(used / jobs * 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=200)
    args = parser.parse_args()
    print(json.dumps(run_loop(measure(args.url, args.jobs, args.slots))))


if __name__ == "__main__":
    main()
