"""`JobQueue` in memory, one thread: enqueue, then dequeue and ack with up to so many in flight.

    python benchmarks/jobqueue.py --jobs 100000

Prints one JSON object; dequeue and ack in five parts each, to show whether they depend on how many are in flight.
"""

import argparse
import json
import time

from hawser import JobQueue


def measure(jobs: int) -> dict[str, object]:
    queue = JobQueue()
    began = time.perf_counter()
    for seq in range(jobs):
        queue.enqueue({"seq": seq, "to": "user@example.com"})
    enqueued = jobs / (time.perf_counter() - began)
    part = jobs // 5
    held, dequeued, acked = [], [], []
    for _ in range(5):
        began = time.perf_counter()
        held += [queue.dequeue(600) for _ in range(part)]
        dequeued.append(round(part / (time.perf_counter() - began)))
    for start in range(0, 5 * part, part):
        began = time.perf_counter()
        assert all(queue.ack(delivery) for delivery in held[start : start + part] if delivery)
        acked.append(round(part / (time.perf_counter() - began)))
    assert queue.stats() == {"visible": 0, "delayed": 0, "in_flight": 0, "dead": 0, "dedup_keys": 0}
    return {"jobs": jobs, "enqueue_per_s": round(enqueued), "dequeue_per_s": dequeued, "ack_per_s": acked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    print(json.dumps(measure(parser.parse_args().jobs)))


if __name__ == "__main__":
    main()
