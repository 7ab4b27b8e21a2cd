"""The Redis store beside bare loops on the same server, in one run: jobs a second, server time and log per job.

    python benchmarks/redis_designs.py --jobs 200000 --batch 400 --processes 2 --rounds 3

- `lists`, `streams`: the store at its seam, done jobs not kept; `lists, kept` and `streams, kept`: kept
- `bare list`: the least that is still fenced, in three scripts: LPOP, packed records, one lease entry per claim, a few counts
- `bare stream`: XADD, XREADGROUP, XACK and XDEL without a script: no fence, no lease, no counts

Each process drains a backlog (`drain`), then enqueues and drains as much again (`steady`). Server time is that of `INFO
commandstats`, which is time of the clock: on a busy machine compare the shares only. `drain_cpu_us` is its main thread on a
core. Each round has new servers (`appendfsync always`), and the designs take turns. `server_runs` is the share of the drain
that the server's main thread was on a core, `server_waits_for_a_core` the share that it queued for one; in the rest it waits
for its disk or for clients. `take_p50_ms` and `take_p99_ms` are of one take of a batch, `waiting_bytes` are memory of the server
for a job that waits, `left_bytes` for one that was drained. `shares` has rates, server time and log as shares of the bare list's
in the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from hawser.job import NewJob
from hawser.lab.redis_server import RedisServer
from hawser.outcome import Done
from hawser.store import Settlement, Share
from hawser.stores import make_store
from hawser.stores.redis.codec import raw
from hawser.value.ids import new_id

BODY = b'{"seq": %d, "to": "user@example.com"}'
NOW = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] local call = redis.call\n"
PUT = (
    NOW
    + """
local ids = {} for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
for _, known in ipairs(call('HMGET', 'b:' .. KEYS[1], unpack(ids))) do if known then return 'known' end end
call('HSET', 'b:' .. KEYS[1], unpack(ARGV)) call('ZADD', 'buckets', 0, KEYS[1]) call('RPUSH', 'lane', unpack(ids))
call('HINCRBY', 'n', 'default', #ids) call('HINCRBY', 't:' .. math.floor(now / 60000000), 'enqueued', #ids)"""
)
CLAIM = (
    NOW
    + """
local ids = call('LPOP', 'lane', ARGV[1]) if not ids then return {} end
local claim, until_ = call('INCR', 'claims'), now + 30000000
local record, by, bodies = struct.pack('>BI4I4I8I8I8', 1, 1, 1, until_, now, claim), {}, {}
for _, id in ipairs(ids) do
  local k = string.sub(id, 1, 5)
  local g = by[k] if not g then g = {} by[k] = g end
  g[#g + 1] = id
end
for k, g in pairs(by) do
  local found, written = call('HMGET', 'b:' .. k, unpack(g)), {}
  for i, id in ipairs(g) do bodies[#bodies + 1] = found[i] written[2 * i - 1] = id written[2 * i] = record end
  call('HSET', 'm:' .. k, unpack(written))
end
local joined = table.concat(ids)
call('HSET', 'c:' .. claim, 'worker', ARGV[2], 'ids', joined, 'open', #ids) call('ZADD', 'leases', until_, claim)
call('HINCRBY', 'n', 'default', -#ids) call('HINCRBY', 'n', 'running', #ids)
call('HINCRBY', 't:' .. math.floor(now / 60000000), 'claimed', #ids)
return {claim, joined, bodies}"""
)
SETTLE = (
    NOW
    + """
local by, settled = {}, 0
for i = 1, #ARGV[2], 16 do
  local id = string.sub(ARGV[2], i, i + 15) local k = string.sub(id, 1, 5)
  local g = by[k] if not g then g = {} by[k] = g end
  g[#g + 1] = id
end
for k, g in pairs(by) do
  local right = {}
  for i, v in ipairs(call('HMGET', 'm:' .. k, unpack(g))) do
    if v then
      local state, lease = struct.unpack('>BI4', v)
      if state == 1 and lease == 1 then right[#right + 1] = g[i] end
    end
  end
  if #right > 0 then call('HDEL', 'm:' .. k, unpack(right)) call('HDEL', 'b:' .. k, unpack(right)) end
  settled = settled + #right
end
local c = 'c:' .. ARGV[1]
if call('HINCRBY', c, 'open', -settled) <= 0 then call('UNLINK', c) call('ZREM', 'leases', ARGV[1]) end
call('HINCRBY', 'n', 'running', -settled) call('HINCRBY', 't:' .. math.floor(now / 60000000), 'done', settled)
return settled"""
)


class BareList:
    def __init__(self, socket: str) -> None:
        self.client = redis.Redis(unix_socket_path=socket)
        self.took: list[float] = []
        self._put, self._claim, self._settle = (self.client.register_script(text) for text in (PUT, CLAIM, SETTLE))

    def put(self, batch: list[NewJob]) -> None:
        by: dict[bytes, list[bytes]] = {}
        for job in batch:
            id = raw(job.id)
            by.setdefault(id[:5], []).extend((id, job.body))
        for bucket, words in by.items():
            self._put(keys=[bucket], args=words)

    def take(self, limit: int) -> int:
        began = time.perf_counter()
        found: Any = self._claim(args=[limit, "w"])
        if not found:
            return 0
        self.took.append(time.perf_counter() - began)
        claim, joined, _ = found
        assert self._settle(args=[claim, joined]) == len(joined) // 16
        return len(joined) // 16


class BareStream:
    def __init__(self, socket: str) -> None:
        self.client = redis.Redis(unix_socket_path=socket)
        self.took: list[float] = []
        with suppress(redis.ResponseError):  # another process has made it
            self.client.xgroup_create("lane", "g", 0, mkstream=True)

    def put(self, batch: list[NewJob]) -> None:
        with self.client.pipeline(transaction=False) as pipe:
            for job in batch:
                pipe.xadd("lane", {b"i": raw(job.id), b"b": job.body})
            pipe.execute()

    def take(self, limit: int) -> int:
        began = time.perf_counter()
        found: Any = self.client.xreadgroup("g", "w", {"lane": ">"}, count=limit)
        if not found:
            return 0
        self.took.append(time.perf_counter() - began)
        ids = [id for id, _ in (found[0][1] if isinstance(found, list) else next(iter(found.values()))[0])]
        with self.client.pipeline(transaction=False) as pipe:
            pipe.xack("lane", "g", *ids)
            pipe.xdel("lane", *ids)
            pipe.execute()
        return len(ids)


def new_jobs(count: int) -> list[NewJob]:
    return [NewJob(id=new_id(), task="noop", body=BODY % seq) for seq in range(count)]


def bare(kind: type[BareList | BareStream], server: str, jobs: int, batch: int, gate: Any, out: Any) -> None:
    """One process of a bare loop."""
    loop, new = kind(server), new_jobs(jobs)
    gate.wait()
    done, began, spent = 0, time.perf_counter(), time.process_time()
    while taken := loop.take(batch):
        done += taken
    drained, spent = time.perf_counter(), time.process_time() - spent
    gate.wait()
    again = time.perf_counter()
    for start in range(0, jobs, batch):
        loop.put(new[start : start + batch])
        done += loop.take(batch)
    while taken := loop.take(batch):
        done += taken
    out.put((drained - began, time.perf_counter() - again, done, spent, loop.took))
    gate.wait()


def seam(url: str, keep: bool, jobs: int, batch: int, gate: Any, out: Any) -> None:
    """One process of the store."""
    asyncio.run(_seam(url, keep, jobs, batch, gate, out))


async def _seam(url: str, keep: bool, jobs: int, batch: int, gate: Any, out: Any) -> None:
    store, new = make_store(url), new_jobs(jobs)
    await store.open()
    done, settling, took = 0, None, []

    async def take() -> int:
        nonlocal done, settling
        asked = time.perf_counter()
        claimed = await store.claim([Share("default")], batch, "w", 30)
        if claimed:
            took.append(time.perf_counter() - asked)
        if settling:
            assert all(answer.said == "settled" for answer in await settling)
        settled = [Settlement(job.id, job.lease, Done(), keep=keep, hint=job.hint) for job in claimed]
        settling = asyncio.ensure_future(store.settle(settled)) if settled else None
        done += len(claimed)
        return len(claimed)

    await asyncio.to_thread(gate.wait)
    began, spent = time.perf_counter(), time.process_time()
    while await take():
        pass
    drained, spent = time.perf_counter(), time.process_time() - spent
    await asyncio.to_thread(gate.wait)
    again = time.perf_counter()
    for start in range(0, jobs, batch):
        await asyncio.gather(store.enqueue(new[start : start + batch]), take())
    while await take():
        pass
    out.put((drained - began, time.perf_counter() - again, done, spent, took))
    await asyncio.to_thread(gate.wait)
    await store.close()


def busy(client: redis.Redis) -> float:
    """Seconds of the server within commands; those that scripts call are counted with the scripts."""
    stats: Any = client.info("commandstats")
    top = ("evalsha", "eval", "fcall") if any("evalsha" in name for name in stats) else ("xadd", "xreadgroup", "xack", "xdel")
    return sum(stats.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in top) / 1e6


def scheduled(pid: int) -> tuple[float, float]:
    """Seconds of the server's main thread on a core, and in the queue for one."""
    ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(waited) / 1e9


def memory(client: redis.Redis) -> int:
    """Without the texts of scripts."""
    info: Any = client.info("memory")
    return int(info["used_memory"]) - int(info["used_memory_scripts_eval"])


def log_size(client: redis.Redis) -> int:
    info: Any = client.info("persistence")
    return int(info["aof_current_size"])


def played(design: str, jobs: int, batch: int, processes: int, nice: int) -> dict[str, float]:
    """One design on a new server: a backlog of `jobs`, then as many at once."""
    # A rewrite of the log would be counted as time and make the log shorter.
    with RedisServer(settings={"auto-aof-rewrite-percentage": "0"}) as server, server.client() as client:
        socket, each = str(server.folder / "s"), jobs // processes
        before, empty = (log_size(client), busy(client)), memory(client)
        url = f"{server.url}?lanes={design.partition(',')[0]}&done_most=1000000000"
        if design.startswith("bare"):
            kind = BareList if design == "bare list" else BareStream
            loop, new = kind(socket), new_jobs(jobs)
            for start in range(0, jobs, batch):
                loop.put(new[start : start + batch])
        else:
            asyncio.run(_fill(url, jobs, batch))
        filled, waiting = (log_size(client), busy(client)), memory(client) - empty
        gate, out = multiprocessing.Barrier(processes + 1), multiprocessing.Queue()
        target = (bare, kind, socket) if design.startswith("bare") else (seam, url, "kept" in design)
        crew = [multiprocessing.Process(target=target[0], args=(*target[1:], each, batch, gate, out)) for _ in range(processes)]
        for process in crew:
            process.start()
            assert process.pid is not None
            os.setpriority(os.PRIO_PROCESS, process.pid, nice)
        began, before_drain = time.perf_counter(), scheduled(server.pid)
        gate.wait()
        gate.wait()
        took, after_drain = time.perf_counter() - began, scheduled(server.pid)
        drained, left = (log_size(client), busy(client)), memory(client) - empty
        found = [out.get() for _ in crew]
        gate.wait()
        for process in crew:
            process.join()
        ended = log_size(client), busy(client)
    assert sum(done for _, _, done, _, _ in found) == jobs + each * processes
    takes = sorted(seconds for *_, took in found for seconds in took)
    return {
        "drain_per_s": jobs / max(drain for drain, *_ in found),
        "steady_per_s": each * processes / max(steady for _, steady, *_ in found),
        "enqueue_us": (filled[1] - before[1]) / jobs * 1e6,
        "drain_us": (drained[1] - filled[1]) / jobs * 1e6,
        "log_bytes": (drained[0] - before[0]) / jobs,
        "client_us": sum(spent for _, _, _, spent, _ in found) / jobs * 1e6,
        "drain_cpu_us": (after_drain[0] - before_drain[0]) / jobs * 1e6,
        "server_runs": (after_drain[0] - before_drain[0]) / took,
        "server_waits_for_a_core": (after_drain[1] - before_drain[1]) / took,
        "take_p50_ms": takes[len(takes) // 2] * 1e3,
        "take_p99_ms": takes[len(takes) * 99 // 100] * 1e3,
        "waiting_bytes": waiting / jobs,
        "left_bytes": left / jobs,
        "steady_us": (ended[1] - drained[1]) / (each * processes) * 1e6,
    }


async def _fill(url: str, jobs: int, batch: int) -> None:
    store = make_store(url)
    await store.open()
    for start in range(0, jobs, batch):
        await store.enqueue(new_jobs(min(batch, jobs - start)))
    await store.close()


DESIGNS = ("bare list", "lists", "streams", "lists, kept", "streams, kept", "bare stream")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=400)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nice", type=int, default=0, help="niceness of the clients: the server gets a core before them")
    parser.add_argument("--designs", default=",,".join(DESIGNS), help="names with ,, between them")
    args = parser.parse_args()
    designs = args.designs.split(",,")
    rounds: list[dict[str, dict[str, float]]] = [{} for _ in range(args.rounds)]
    for number, one in enumerate(rounds, 1):
        for design in designs:
            one[design] = played(design, args.jobs, args.batch, args.processes, args.nice)
            if number == args.rounds:
                say(design, rounds)


def say(design: str, rounds: list[dict[str, dict[str, float]]]) -> None:
    """The medians of a design, as soon as its last round is over."""
    figures = {name: round(statistics.median(one[design][name] for one in rounds), 2) for name in rounds[0][design]}
    shares = {}
    if "bare list" in rounds[-1] and design != "bare list":
        shares = {
            name: round(statistics.median(one[design][name] / one["bare list"][name] for one in rounds), 2)
            for name in ("drain_per_s", "steady_per_s", "drain_us", "drain_cpu_us", "log_bytes")
        }
    print(json.dumps({"design": design, **figures, "shares": shares}), flush=True)


if __name__ == "__main__":
    main()
