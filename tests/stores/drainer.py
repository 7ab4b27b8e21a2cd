"""A process that puts its jobs into a store and drains whatever is there. Run by `crowd`.

    python -m tests.stores.drainer URL NAME FIRST_ID_FILE JOURNAL

Ids come from a file, so a process that was killed and started again enqueues the same jobs, not new ones. The journal is one
append-only file for all, one write per record: it shows what the store answered, whatever happens to us.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

from hawser.job import NewJob
from hawser.outcome import Done, Failed, Failure
from hawser.store import Settlement, Share
from hawser.stores import make_store


async def main(url: str, name: str, ids: list[str], journal: int) -> None:
    store = make_store(url)
    await store.open()
    rng = random.Random(name)

    async def produce() -> None:
        for i in range(0, len(ids), 50):
            batch = ids[i : i + 50]
            await store.enqueue([NewJob(id=id, task="work", body=b"{}", max_attempts=1000) for id in batch])
            os.write(journal, b"".join(b"accepted %s\n" % id.encode() for id in batch))

    async def consume() -> None:
        while True:
            await store.reclaim(100)
            claimed = await store.claim([Share("default")], rng.randint(1, 60), name, lease_for=1.5)
            if not claimed:
                await store.wait(["default"], 0.1)
                continue
            outcomes = [Done() if rng.random() < 0.9 else Failed(Failure("again")) for _ in claimed]
            settlements = [
                Settlement(job.id, job.lease, outcome, hint=job.hint if rng.random() < 0.8 else None)
                for job, outcome in zip(claimed, outcomes, strict=True)
            ]
            for settlement, said in zip(settlements, await store.settle(settlements), strict=True):
                if isinstance(settlement.outcome, Done):
                    os.write(journal, f"{said.said} {settlement.id}\n".encode())

    await asyncio.gather(produce(), consume())


if __name__ == "__main__":
    url, name, ids_file, journal_file = sys.argv[1:]
    asyncio.run(
        main(url, name, Path(ids_file).read_text().split(), os.open(journal_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    )
