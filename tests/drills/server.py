"""kill -9 of the server during keyed POSTs whose senders try again, and a check of what the store then holds.

    python -m tests.drills.server --jobs 1000 --kills 10
    python -m tests.drills.server --jobs 1000 --kills 10 --postgres

Prints one JSON object; exit code 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx

from hawser import Hawser
from hawser.lab.cluster import Cluster
from tests.api.processes import Served

SENDERS = 16


class Sender(threading.Thread):
    """Posts jobs, each under its own key, again and again until it has an answer."""

    def __init__(self, server: Served, numbers: list[int], seen: threading.Semaphore) -> None:
        super().__init__(daemon=True)
        self.server, self.numbers, self.seen = server, numbers, seen
        self.created: dict[str, str] = {}
        self.known: dict[str, str] = {}
        self.again = 0
        self.odd: list[str] = []

    def run(self) -> None:
        with httpx.Client(timeout=10) as client:
            for number in self.numbers:
                self.send(client, f"order:{number}", {"task": "charge", "payload": {"order": number}})
                self.seen.release()

    def send(self, client: httpx.Client, key: str, body: dict[str, Any]) -> None:
        while True:
            try:
                response = client.post(f"{self.server.url}/jobs", json={**body, "key": key, "key_ttl": "forever"})
            except httpx.TransportError:
                self.again += 1
                time.sleep(0.02)
                continue
            if response.status_code == 503:
                self.again += 1
            elif response.status_code in (200, 201):
                answers = self.created if response.status_code == 201 else self.known
                answers[key] = response.json()["id"]
                return
            else:
                self.odd.append(f"{response.status_code}: {response.text}")
                return


def keyed_posts(folder: Path, *, jobs: int, kills: int, seed: int, store: str | None = None) -> dict[str, Any]:
    rng = random.Random(seed)
    server = Served(folder, store=store)
    seen = threading.Semaphore(0)
    senders = [Sender(server, list(range(start, jobs, SENDERS)), seen) for start in range(SENDERS)]
    try:
        server.start()
        for sender in senders:
            sender.start()
        for _ in range(kills):
            for _ in range(max(1, int(rng.uniform(0.5, 1.0) * jobs / (kills + 1)))):
                seen.acquire()
            server.kill()
            server.start()
        for sender in senders:
            sender.join(120)
    finally:
        server.end()
    return check(server, senders, jobs, kills, seed)


def check(server: Served, senders: list[Sender], jobs: int, kills: int, seed: int) -> dict[str, Any]:
    created = {key: id for sender in senders for key, id in sender.created.items()}
    known = {key: id for sender in senders for key, id in sender.known.items()}
    stored: dict[str, list[str]] = {}
    with Hawser(server.store) as app:
        after = None
        while True:
            page = app.find(after=after, limit=1000)
            for job in page.jobs:
                stored.setdefault(job.key or "", []).append(job.id)
            after = page.next
            if after is None:
                break
    wrong = [answer for sender in senders for answer in sender.odd]
    wrong += [f"{key}: 201 for {id}, which is not there" for key, id in created.items() if id not in stored.get(key, [])]
    wrong += [f"{key}: 200 for {id}, which is not there" for key, id in known.items() if id not in stored.get(key, [])]
    wrong += [f"{key} has {len(ids)} jobs" for key, ids in stored.items() if len(ids) != 1]
    if missing := {f"order:{number}" for number in range(jobs)} - stored.keys():
        wrong.append(f"{len(missing)} keys have no job")
    if unanswered := jobs - len(created.keys() | known.keys()):
        wrong.append(f"{unanswered} keys got no answer")
    return {
        "drill": "server",
        "store": server.store.partition(":")[0],
        "seed": seed,
        "jobs": jobs,
        "kills": kills,
        "created": len(created),
        "found_after_a_lost_answer": len(known),
        "sent_again": sum(sender.again for sender in senders),
        "stored": Counter(len(ids) for ids in stored.values())[1],
        "wrong": wrong[:20],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Cluster() if args.postgres else nullcontext() as cluster:
        store = cluster.url if cluster else None
        report = keyed_posts(Path(name), jobs=args.jobs, kills=args.kills, seed=args.seed, store=store)
    print(json.dumps(report, indent=2))
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
