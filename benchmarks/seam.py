"""Jobs a second through enqueue, claim and settle, at the seam, with batches.

First all are enqueued, then all are drained, then both at once (`through_per_s`): one producer, one consumer.

    python benchmarks/seam.py sqlite:////tmp/seam.db --jobs 100000 --batch 100

Prints one JSON object. The store is used as it is: a durable one syncs each commit.
"""

import argparse
import asyncio
import json
import platform
import time

from hawser.job import NewJob
from hawser.outcome import Done
from hawser.store import Settlement, Share, Store
from hawser.stores import make_store


async def produce(store: Store, jobs: list[NewJob], batch: int) -> None:
    for i in range(0, len(jobs), batch):
        await store.enqueue(jobs[i : i + batch])


async def consume(store: Store, jobs: int, batch: int) -> None:
    """Claim the next batch while the last one is settled, as a worker does."""
    settled, settling = 0, None
    while settled < jobs:
        claimed = await store.claim([Share("default")], batch, "w1", 30)
        if settling:
            assert all(answer.said == "settled" for answer in await settling)
            settling = None
        if claimed:
            settled += len(claimed)
            settling = asyncio.ensure_future(
                store.settle([Settlement(job.id, job.lease, Done(), hint=job.hint) for job in claimed])
            )
        else:
            await store.wait(["default"], 1.0)
    if settling:
        await settling


async def measure(url: str, jobs: int, batch: int) -> dict[str, object]:
    store = make_store(url)
    await store.open()
    new = [NewJob(task="noop", body=b'{"seq": %d, "to": "user@example.com"}' % seq) for seq in range(jobs)]
    began = time.perf_counter()
    await produce(store, new, batch)
    enqueued = time.perf_counter()
    await consume(store, jobs, batch)
    drained = time.perf_counter()
    new = [NewJob(task="noop", body=job.body) for job in new]
    again = time.perf_counter()
    await asyncio.gather(produce(store, new, batch), consume(store, jobs, batch))
    through = time.perf_counter()
    await store.close()
    return {
        "store": url.split(":", maxsplit=1)[0],
        "durable": store.durability == "durable",
        "jobs": jobs,
        "batch": batch,
        "enqueue_per_s": round(jobs / (enqueued - began)),
        "drain_per_s": round(jobs / (drained - enqueued)),
        "through_per_s": round(jobs / (through - again)),
        "python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=100)
    args = parser.parse_args()
    print(json.dumps(asyncio.run(measure(args.url, args.jobs, args.batch))))


if __name__ == "__main__":
    main()
