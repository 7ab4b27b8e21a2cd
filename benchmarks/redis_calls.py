"""Every kind of call of the Redis store with 1,000 jobs, while many others wait: what one script holds up the server.

    python benchmarks/redis_calls.py [--jobs 1000000] [--lanes lists] [--only claim,find] [--rounds 3]

One JSON object a line for each kind: scripts that it ran, milliseconds of the longest by the server's clock (`SLOWLOG`), and
milliseconds of the server's main thread on a core for the whole call, its log and its sync included, also divided by the scripts.
On a busy machine believe the thread, not the clock. Of several rounds the least: what is more comes from other programs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hawser.batch import new_batch
from hawser.job import Claimed, NewJob, State
from hawser.lab.redis_server import RedisServer
from hawser.outcome import Dead, Done, Failed, Failure, Outcome
from hawser.schedule.rule import Every, text_of
from hawser.schedule.schedule import Definition, create, plan
from hawser.store import Actor, BulkPlan, BulkStep, Change, Filter, LeaseRef, Retention, Settlement, Share, Store
from hawser.stores import make_store
from hawser.value.ids import new_id

BODY = b'{"seq": %d, "to": "user@example.com"}'
AT_ONCE = 1_000
ACTOR = Actor("bench", reason="asked for")
EVERY_MINUTE = text_of(Every(minutes=1))

Call = tuple[str, Callable[[], Awaitable[Any]]]


def jobs(count: int = AT_ONCE, **fields: Any) -> list[NewJob]:
    return [NewJob(id=new_id(), task="noop", body=BODY % seq, **fields) for seq in range(count)]


def each(fields: Callable[[int], dict[str, Any]], queue: str) -> list[NewJob]:
    return [NewJob(id=new_id(), task="noop", queue=queue, body=BODY % seq, **fields(seq)) for seq in range(AT_ONCE)]


def ended(claimed: list[Claimed], outcome: Outcome) -> list[Settlement]:
    return [Settlement(job.id, job.lease, outcome, hint=job.hint) for job in claimed]


class Cost:
    """What a call cost the server."""

    def __init__(self, server: RedisServer) -> None:
        self._client = server.client()
        self._pid = server.pid
        self._client.config_set("slowlog-log-slower-than", 0)
        self._client.config_set("slowlog-max-len", 100_000)

    def _ran(self) -> float:
        return int(Path(f"/proc/{self._pid}/task/{self._pid}/schedstat").read_text().split()[0]) / 1e6

    async def of(self, call: Callable[[], Awaitable[Any]]) -> tuple[dict[str, float], Any]:
        self._client.slowlog_reset()
        ran = self._ran()
        answer = await call()
        ran = self._ran() - ran
        found: Any = self._client.slowlog_get(-1)
        took = [entry["duration"] for entry in found if entry["command"].startswith(b"EVAL")]
        if not took:
            return {"scripts": 0, "longest_ms": 0.0, "thread_ms": round(ran, 2), "thread_ms_each": 0.0}, answer
        longest = round(max(took) / 1e3, 2)
        return {
            "scripts": len(took),
            "longest_ms": longest,
            "thread_ms": round(ran, 2),
            "thread_ms_each": round(ran / len(took), 2),
        }, answer


class Calls:
    """All kinds of calls, each on a queue that the others do not touch."""

    def __init__(self, store: Store, cost: Cost, only: list[str]) -> None:
        self._store = store
        self._cost = cost
        self._only = only
        self.found: dict[str, dict[str, float]] = {}

    async def of(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        cost, answer = await self._cost.of(call)
        known = self.found.get(name)
        if known is None or cost["thread_ms"] < known["thread_ms"]:
            self.found[name] = cost
        return answer

    async def play(self) -> None:
        for name in ("kinds", "operator", "cancelled", "waiting", "batches", "schedules", "reads"):
            if not self._only or name in self._only:
                await getattr(self, name)()

    async def kinds(self) -> None:
        """Each kind of job from enqueue to its end."""
        mark = new_id()
        kinds: dict[str, Callable[[int], dict[str, Any]]] = {
            "plain": lambda _: {},
            "with keys": lambda seq: {"key": f"{mark}-{seq}"},
            "in groups": lambda seq: {"group": f"g{seq}"},
            "in one group": lambda _: {"group": "g"},
            "indexed": lambda seq: {"index": (f"user={seq}", f"mail={seq}")},
            "that expire": lambda _: {"expires": 3600.0},
        }
        for kind, fields in kinds.items():
            queue = kind.replace(" ", "_")
            new = each(fields, queue)
            await self.of(f"enqueue {kind}", lambda new=new: self._store.enqueue(new))
            await self.of(f"enqueue {kind} again", lambda new=new: self._store.enqueue(new))
            claimed = await self.of(f"claim {kind}", lambda queue=queue: self._store.claim([Share(queue)], AT_ONCE, "w1", 600))
            leases = [LeaseRef(job.id, job.lease) for job in claimed]
            await self.of(f"extend {kind}", lambda leases=leases: self._store.extend("w1", leases, 900))
            await self.of(f"settle {kind}", lambda claimed=claimed: self._store.settle(ended(claimed, Done())))
        new = jobs(queue="late", delay=60)
        await self.of("enqueue delayed", lambda: self._store.enqueue(new))
        new = jobs(queue="d", key=mark, debounce=60)
        await self.of("enqueue debounced", lambda: self._store.enqueue(new))
        for word, outcome in (("failed", Failed(Failure("E: x", "Traceback"), 60)), ("with a result", Done(b'{"a": 1}'))):
            await self._store.enqueue(jobs(queue=f"q{word[:4]}"))
            claimed = await self._store.claim([Share(f"q{word[:4]}")], AT_ONCE, "w1", 600)
            await self.of(f"settle {word}", lambda claimed=claimed, outcome=outcome: self._store.settle(ended(claimed, outcome)))

    async def _dead(self, queue: str) -> list[str]:
        await self._store.enqueue(jobs(queue=queue, max_attempts=1))
        claimed = await self._store.claim([Share(queue)], AT_ONCE, "w1", 600)
        await self.of("settle dead", lambda: self._store.settle(ended(claimed, Dead(Failure("E: x", "Traceback")))))
        return [job.id for job in claimed]

    async def operator(self) -> None:
        store = self._store
        ids = await self._dead("x")
        await self.of("requeue", lambda: store.requeue(ids, ACTOR))
        await self.of("change", lambda: store.change(ids, Change(priority=7), ACTOR))
        await self.of("cancel", lambda: store.cancel(ids, ACTOR))
        ids = await self._dead("x")
        await self.of("discard", lambda: store.discard(ids, ACTOR))
        ids = await self._dead("x")
        await self.of("replace of one", lambda: store.replace(ids[0], jobs(1, queue="x")[0], ACTOR))
        await self.of("rewind of one", lambda: store.rewind(ids[1], None, ACTOR))
        newest = new_id()
        about = BulkPlan(action="requeue", filter=Filter(state=State.DEAD), newest=newest, rate=1e6, by="bench")
        operation = await store.start_bulk(new_id(), about, "here")
        step = BulkStep(id=operation.id, turn=operation.turn, behind=None, cursor=ids[-1], ids=tuple(ids[2:]))
        await self.of("step of a bulk operation", lambda: store.step_bulk(step))
        new = jobs(queue="x")
        await store.enqueue(new)
        await self.of("dead_letter", lambda: store.dead_letter([job.id for job in new], ACTOR))
        while await self.of("prune", lambda: store.prune(Retention(done=0, dead=0, cancelled=0), {}, AT_ONCE)) == AT_ONCE:
            pass

    async def cancelled(self) -> None:
        """A claim whose jobs stand behind many that were cancelled; another lane keeps the list from being emptied."""
        queue = "cancelled"
        gone = []
        for _ in range(10):
            gone += await self._store.enqueue(jobs(queue=queue))
        await self._store.enqueue(jobs(queue=queue))
        for start in range(0, len(gone), AT_ONCE):
            await self._store.cancel([one.id for one in gone[start : start + AT_ONCE]], ACTOR)
        for number in range(30):
            claimed = await self.of("claim behind 10,000 cancelled", lambda: self._store.claim([Share(queue)], AT_ONCE, "w1", 60))
            if claimed:
                await self._store.settle(ended(claimed, Done()))
                self.found["claims until they were passed"] = {"thread_ms": number + 1}
                return

    async def waiting(self) -> None:
        store = self._store
        first = jobs(queue="first")
        await store.enqueue(first)
        new = [NewJob(task="noop", queue="then", body=b"{}", waits_for=(job.id,)) for job in first]
        await self.of("enqueue that wait", lambda: store.enqueue(new))
        fan = [NewJob(task="noop", queue="then", body=b"{}", waits_for=(first[0].id,)) for _ in range(AT_ONCE)]
        await self.of("enqueue that wait for one", lambda: store.enqueue(fan))
        claimed = await self.of("claim waited for", lambda: store.claim([Share("first")], AT_ONCE, "w1", 600))
        await self.of("settle waited for", lambda: store.settle(ended(claimed, Done())))
        await self._finish("then")

    async def batches(self) -> None:
        store = self._store
        batch = new_batch(name="import", then=NewJob(task="noop", queue="then", body=b"{}"))
        await store.open_batch(batch)
        new = jobs(queue="members", batch=batch.id)
        await self.of("enqueue of members", lambda: store.enqueue(new))
        await self.of("close_batch", lambda: store.close_batch(batch.id))
        claimed = await self.of("claim of members", lambda: store.claim([Share("members")], AT_ONCE, "w1", 600))
        await self.of("settle of members", lambda: store.settle(ended(claimed, Done())))
        batch = new_batch(name="import")
        await store.open_batch(batch)
        await store.enqueue(jobs(queue="members", batch=batch.id))
        await self.of("cancel_batch", lambda: store.cancel_batch(batch.id, ACTOR))
        await self.of("batches", store.batches)
        await self._finish("then")

    async def schedules(self) -> None:
        store = self._store
        made = [
            create(Definition(name=f"s{n}", rule_text=EVERY_MINUTE, task="noop"), (await store.due_schedules(0)).now)
            for n in range(100)
        ]
        await self.of("fire, 100 new", lambda: store.fire(made))
        later = (await store.due_schedules(0)).now + 120_000_000
        due = [plan(schedule, later) for schedule in await store.schedules()]
        await self.of("fire, 100 with a job", lambda: store.fire(due))
        one = create(Definition(name="one", rule_text=EVERY_MINUTE, task="noop"), later)
        await self.of("put_schedule", lambda: store.put_schedule(one, "create", ACTOR))
        await self.of("due_schedules", lambda: store.due_schedules(100))
        for schedule in await store.schedules():
            await store.delete_schedule(schedule.name, ACTOR)

    async def reads(self) -> None:
        store = self._store
        await self.of("find, newest", lambda: store.find(Filter(), None, AT_ONCE))
        await self.of("find that matches nothing", lambda: store.find(Filter(task="nothing"), None, 100))
        await self.of("stats", store.stats)
        await self.of("lanes", store.lanes)
        await self.of("queues", store.queues)
        await self.of("dead_letters", lambda: store.dead_letters(limit=100))
        await self._store.enqueue(jobs(queue="lost"))
        await store.claim([Share("lost")], 500, "w2", 0.1)
        await asyncio.sleep(0.2)
        await self.of("reclaim of 500", lambda: store.reclaim(500))
        await self._finish("lost")

    async def _finish(self, queue: str) -> None:
        while claimed := await self._store.claim([Share(queue)], AT_ONCE, "w1", 60):
            await self._store.settle(ended(claimed, Done()))


async def measure(count: int, lanes: str, only: list[str], rounds: int) -> None:
    with RedisServer(settings={"auto-aof-rewrite-percentage": "0"}) as server:
        store = make_store(f"redis://127.0.0.1:{server.port}/0?lanes={lanes}&done_most=1000000000&timeout=60")
        await store.open()
        for start in range(0, count, AT_ONCE):
            await store.enqueue(jobs(min(AT_ONCE, count - start), queue="waiting"))
        calls = Calls(store, Cost(server), only)
        for _ in range(rounds):
            await calls.play()
        await store.close()
    for name, cost in sorted(calls.found.items(), key=lambda pair: -pair[1].get("thread_ms_each", 0)):
        print(json.dumps({"call": name, **cost}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--lanes", default="lists", choices=("lists", "streams"))
    parser.add_argument(
        "--only", default="", help="of kinds,operator,cancelled,waiting,batches,schedules,reads; all unless given"
    )
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(measure(asked.jobs, asked.lanes, [name for name in asked.only.split(",") if name], asked.rounds))


if __name__ == "__main__":
    main()
