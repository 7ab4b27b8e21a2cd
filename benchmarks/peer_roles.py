"""One peer in one role: makes its tables, enqueues, or works. `peers.py` starts it with the interpreter that has the peers.

    python benchmarks/peer_roles.py setup|bulk|singles|work PEER URL [COUNT] [RATE] [--safe]

Each job notes its number, when it was sent and when it ended into a file of its process, in one write: so all peers are
looked at in the same way, whatever their tables are. A job of N milliseconds sleeps so long first. Workers have the best
settings found; what --safe changes stands in the class of the peer.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import threading
import time
from datetime import timedelta

TO = "user@example.com"
NOTE = struct.Struct("<Qdd")
CONCURRENCY = 100
THREADS = 8
SOON = 5
"""Seconds after which safe settings take a worker for dead, where a peer lets that be said."""

_files = threading.local()


def note(seq, sent):
    """One job is done. One write, so that kill -9 leaves whole notes."""
    fd = getattr(_files, "fd", None)
    if fd is None or _files.pid != os.getpid():
        name = f"{os.environ['PEER_NOTES']}/{os.getpid()}-{threading.get_ident()}"
        fd = _files.fd = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        _files.pid = os.getpid()
    os.write(fd, NOTE.pack(seq, sent, time.time()))


async def handled(seq, sent, ms, to=TO):
    if ms:
        await asyncio.sleep(ms / 1000)
    note(seq, sent)


def handled_in_thread(seq, sent, ms, to=TO):
    if ms:
        time.sleep(ms / 1000)
    note(seq, sent)


class Peer:
    """What a peer can be asked for. `arguments` are those of a job."""

    packages: tuple[str, ...] = ()

    def __init__(self, url, safe):
        self.url = url
        self.safe = safe

    async def setup(self):
        """Tables, where there are any."""

    async def opened(self):
        """Ready to enqueue."""

    async def bulk(self, jobs):
        """As many at once as the peer can; one by one where it cannot."""
        for job in jobs:
            await self.single(job)

    async def single(self, job):
        raise NotImplementedError

    async def closed(self):
        """Nothing more is enqueued."""

    def work(self):
        """For ever."""
        raise NotImplementedError


class Pgqueuer(Peer):
    """Safe: other workers take a job over when its heartbeat is 5 s old, not 30."""

    packages = ("pgqueuer", "asyncpg")

    async def opened(self):
        import asyncpg
        from pgqueuer.queries import Queries

        self.con = await asyncpg.connect(self.url)
        self.queries = Queries.from_asyncpg_connection(self.con)

    async def setup(self):
        await self.opened()
        await self.queries.install()

    async def bulk(self, jobs):
        for start in range(0, len(jobs), 1_000):
            some = [json.dumps(job).encode() for job in jobs[start : start + 1_000]]
            await self.queries.enqueue(["noop"] * len(some), some, [0] * len(some))

    async def single(self, job):
        await self.queries.enqueue("noop", json.dumps(job).encode())

    async def closed(self):
        await self.con.close()

    def work(self):
        import asyncpg
        import uvloop
        from pgqueuer import PgQueuer

        async def run():
            queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(self.url))

            @queue.entrypoint("noop")
            async def noop(job):
                await handled(*json.loads(job.payload))

            beat = timedelta(seconds=SOON if self.safe else 30)
            await queue.run(batch_size=200, dequeue_timeout=timedelta(seconds=1), heartbeat_timeout=beat)

        uvloop.run(run())


class Procrastinate(Peer):
    """Safe: stalled jobs are retried by a loop beside the worker, as its documents tell; there is none by default."""

    packages = ("procrastinate", "psycopg")

    def app(self):
        import procrastinate

        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self.url, min_size=4, max_size=20))

        @app.task(name="noop")
        async def noop(job):
            await handled(*job)

        return app, noop

    async def setup(self):
        await self.opened()
        await self.made.schema_manager.apply_schema_async()
        await self.closed()

    async def opened(self):
        self.made, self.task = self.app()
        await self.made.open_async()

    async def bulk(self, jobs):
        for start in range(0, len(jobs), 1_000):
            await self.task.batch_defer_async(*({"job": job} for job in jobs[start : start + 1_000]))

    async def single(self, job):
        await self.task.defer_async(job=job)

    async def closed(self):
        await self.made.close_async()

    def work(self):
        async def run():
            app, _ = self.app()
            async with app.open_async():
                rescue = asyncio.ensure_future(self.rescue(app)) if self.safe else None
                beat = {"update_heartbeat_interval": 1.0, "stalled_worker_timeout": float(SOON)} if self.safe else {}
                how = {"concurrency": CONCURRENCY, "wait": True, "install_signal_handlers": False, "delete_jobs": "always"}
                await app.run_worker_async(**how, **beat)
                del rescue

        asyncio.run(run())

    async def rescue(self, app):
        while True:
            for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=SOON):
                await app.job_manager.retry_job(job)
            await asyncio.sleep(1)


class Oban(Peer):
    """Safe: producers are seen each second, and a job that has run for 5 s belongs to the dead; by default after 300 s."""

    packages = ("oban", "psycopg")

    async def opened(self):
        from oban import Oban as App
        from oban import worker

        @worker(queue="default", max_attempts=5)
        class Noop:
            async def process(self, job):
                await handled(*job.args["job"])

        self.pool = await App.create_pool(self.url, min_size=2, max_size=10)
        self.task = Noop
        often = {
            "lifeline": {"interval": 1.0, "rescue_after": float(SOON)},
            "refresher": {"interval": 1.0, "max_age": float(SOON)},
        }
        self.made = lambda **options: App(pool=self.pool, **options, **(often if self.safe else {}))
        self.client = self.made()

    async def setup(self):
        from oban.schema import install

        await self.opened()
        await install(self.pool)
        await self.closed()

    async def bulk(self, jobs):
        for start in range(0, len(jobs), 1_000):
            await self.client.enqueue_many(*(self.task.new({"job": job}) for job in jobs[start : start + 1_000]))

    async def single(self, job):
        await self.client.enqueue(self.task.new({"job": job}))

    async def closed(self):
        await self.pool.close()

    def work(self):
        async def run():
            await self.opened()
            async with self.made(queues={"default": CONCURRENCY}):
                await asyncio.Event().wait()

        asyncio.run(run())


class Chancy(Peer):
    """Safe: a worker is dead after 5 s without a heartbeat, looked for each second, and a job may be tried five times."""

    packages = ("chancy",)

    def app(self):
        from chancy import Chancy as App
        from chancy.plugins.leadership import Leadership
        from chancy.plugins.recovery import Recovery

        plugins = [Leadership(poll_interval=1, timeout=SOON), Recovery(poll_interval=1)] if self.safe else None
        return App(self.url, plugins=plugins)

    async def setup(self):
        from chancy import Queue

        async with self.app() as app:
            await app.migrate()
            await app.declare(
                Queue("default", concurrency=CONCURRENCY, executor=app.Executor.Async, polling_interval=1, eager_polling=True)
            )

    def job(self, job):
        from chancy.job import Job

        return Job.from_func(chancy_noop, kwargs={"job": job}, max_attempts=5)

    async def opened(self):
        self.made = await self.app().__aenter__()

    async def bulk(self, jobs):
        async for _ in self.made.push_many([self.job(job) for job in jobs]):
            pass

    async def single(self, job):
        await self.made.push(self.job(job))

    async def closed(self):
        await self.made.__aexit__(None, None, None)

    def work(self):
        from chancy import Worker

        async def run():
            async with self.app() as app:
                beat = {"heartbeat_poll_interval": 1, "heartbeat_timeout": SOON} if self.safe else {}
                async with Worker(app, **beat) as worker:
                    await worker.wait_for_shutdown()

        asyncio.run(run())


async def chancy_noop(*, job):
    await handled(*job)


class Taskiq(Peer):
    """Its stream broker, which acknowledges a job when it is done. Safe: taken over after 5 s, not 600."""

    packages = ("taskiq", "taskiq-redis")

    def broker(self):
        from taskiq_redis import RedisStreamBroker

        again = {"idle_timeout": SOON * 1_000, "unacknowledged_lock_timeout": float(SOON)} if self.safe else {}
        broker = RedisStreamBroker(self.url, consumer_id="0", **again)

        @broker.task(task_name="noop")
        async def noop(job: list):
            await handled(*job)

        return broker, noop

    async def setup(self):
        await self.opened()
        await self.closed()

    async def opened(self):
        self.made, self.task = self.broker()
        await self.made.startup()

    async def bulk(self, jobs):
        await by_many(self.single, jobs)

    async def single(self, job):
        await self.task.kiq(job)

    async def closed(self):
        await self.made.shutdown()

    def work(self):
        import uvloop
        from taskiq.api import run_receiver_task

        async def run():
            broker, _ = self.broker()
            broker.is_worker_process = True
            await broker.startup()
            await run_receiver_task(broker, max_async_tasks=CONCURRENCY)

        uvloop.run(run())


class Dramatiq(Peer):
    """Eight threads. Safe: a worker is dead after 5 s without a heartbeat, not 60, and each call looks for such."""

    packages = ("dramatiq",)

    async def opened(self):
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        how = {"heartbeat_timeout": SOON * 1_000, "maintenance_chance": 1_000_000} if self.safe else {}
        self.broker = RedisBroker(url=self.url, **how)
        dramatiq.set_broker(self.broker)
        self.task = dramatiq.actor(lambda job: handled_in_thread(*job), actor_name="noop", max_retries=5)

    async def single(self, job):
        self.task.send(job)

    def work(self):
        import dramatiq

        asyncio.run(self.opened())
        dramatiq.Worker(self.broker, worker_threads=THREADS, worker_timeout=100).start()
        while True:
            time.sleep(60)


class Docket(Peer):
    """Safe: what was not done within 5 s is delivered again, not 300."""

    packages = ("pydocket",)

    async def opened(self):
        from docket import Docket as Place

        self.made = await Place(name="peers", url=self.url).__aenter__()
        self.made.register(docket_noop)

    async def bulk(self, jobs):
        await by_many(self.single, jobs, 8)  # it has no more connections

    async def single(self, job):
        await self.made.add(docket_noop)(job)

    async def closed(self):
        await self.made.__aexit__(None, None, None)

    def work(self):
        import uvloop
        from docket import Worker

        async def run():
            await self.opened()
            again = {"redelivery_timeout": timedelta(seconds=SOON)} if self.safe else {}
            async with Worker(self.made, concurrency=CONCURRENCY, **again) as worker:
                await worker.run_forever()

        uvloop.run(run())


async def docket_noop(job: list):
    await handled(*job)


class Arq(Peer):
    """Safe: a job may take 5 s, so that its mark of being run ends after 15 s and not after 310."""

    packages = ("arq",)

    async def opened(self):
        from arq import create_pool
        from arq.connections import RedisSettings

        self.made = await create_pool(RedisSettings.from_dsn(self.url))

    async def bulk(self, jobs):
        await by_many(self.single, jobs)

    async def single(self, job):
        await self.made.enqueue_job("noop", job)

    async def closed(self):
        await self.made.aclose()

    def work(self):
        from arq import Worker, func
        from arq.connections import RedisSettings

        async def noop(ctx, job):
            await handled(*job)

        async def run():
            how = {"redis_settings": RedisSettings.from_dsn(self.url), "max_jobs": CONCURRENCY, "poll_delay": 0.02}
            how |= {"keep_result": 0, "handle_signals": False} | ({"job_timeout": SOON} if self.safe else {})
            await Worker([func(noop, name="noop")], **how).main()

        asyncio.run(run())


class Celery(Peer):
    """Prefork, two processes each. Safe: acknowledged late, put back when its worker is lost, visible after 5 s, not 3,600."""

    packages = ("celery", "redis")

    def app(self):
        import celery

        app = celery.Celery(broker=self.url)
        app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
        if self.safe:
            app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1)
            app.conf.broker_transport_options = {"visibility_timeout": SOON}

        @app.task(name="noop")
        def noop(job):
            handled_in_thread(*job)

        return app, noop

    async def opened(self):
        self.made, self.task = self.app()

    async def single(self, job):
        self.task.delay(job)

    def work(self):
        app, _ = self.app()
        words = ["worker", "--concurrency=2", "--pool=prefork", "--loglevel=ERROR", "--without-gossip", "--without-mingle"]
        app.worker_main([*words, f"--hostname=peer{os.getpid()}@here"])


class Rq(Peer):
    """A process for each job. Safe: two retries, and registries looked through each 5 s, not 600."""

    packages = ("rq",)

    async def opened(self):
        import redis
        from rq import Queue

        self.queue = Queue(connection=redis.Redis.from_url(self.url))

    async def bulk(self, jobs):
        from rq import Queue, Retry

        retry = {"retry": Retry(max=2)} if self.safe else {}
        for start in range(0, len(jobs), 500):
            some = jobs[start : start + 500]
            self.queue.enqueue_many([Queue.prepare_data(handled_in_thread, args=tuple(job), **retry) for job in some])

    async def single(self, job):
        self.queue.enqueue(handled_in_thread, *job)

    def work(self):
        from rq import Worker

        asyncio.run(self.opened())
        how = {"maintenance_interval": SOON, "worker_ttl": SOON, "job_monitoring_interval": 1} if self.safe else {}
        Worker([self.queue], connection=self.queue.connection, **how).work(logging_level="ERROR")


class Huey(Peer):
    """SQLite with a sync for each commit, eight threads. Jobs are taken out before they are run: there is nothing to set."""

    packages = ("huey",)

    async def opened(self):
        from huey import SqliteHuey

        self.made = SqliteHuey("peers", filename=self.url, fsync=True, results=False)
        self.task = self.made.task(name="noop")(lambda job: handled_in_thread(*job))

    async def single(self, job):
        self.task(job)

    def work(self):
        asyncio.run(self.opened())
        self.made.create_consumer(workers=THREADS, worker_type="thread", initial_delay=0.01, max_delay=0.05).run()


class Litequeue(Peer):
    """A loop of one's own around it. Safe: `synchronous=full`, and the loop puts back what was locked for 5 s."""

    packages = ("litequeue",)

    async def opened(self):
        from litequeue import LiteQueue

        self.queue = LiteQueue(self.url)
        if self.safe:
            self.queue.conn.execute("pragma synchronous = full")

    async def single(self, job):
        self.queue.put(json.dumps(job))

    def work(self):
        asyncio.run(self.opened())
        looked = time.monotonic()
        while True:
            message = self.queue.pop()
            if message is None:
                time.sleep(0.005)
            else:
                handled_in_thread(*json.loads(message.data))
                self.queue.done(message.message_id)
            if self.safe and time.monotonic() - looked > 1:
                looked = time.monotonic()
                for locked in list(self.queue.list_locked(SOON)):
                    self.queue.retry(locked.message_id)


class Hawser(Peer):
    """This project, beside them. Safe: what its worker does anyway, with a lease of 5 s instead of 30."""

    packages = ("hawser-jobs",)

    def app(self):
        import hawser

        app = hawser.Hawser(self.url)

        @app.task(name="noop", max_attempts=5)
        async def noop(seq: int, sent: float, ms: int, to: str = TO) -> None:
            await handled(seq, sent, ms)

        return app, noop

    async def setup(self):
        await self.opened()
        await self.closed()

    async def opened(self):
        self.made, self.task = self.app()
        await self.made.aopen()

    async def bulk(self, jobs):
        for start in range(0, len(jobs), 1_000):
            await self.made.aenqueue_many([self.task.job(*job) for job in jobs[start : start + 1_000]])

    async def single(self, job):
        await self.task.aenqueue(*job)

    async def closed(self):
        await self.made.aclose()

    def work(self):
        words = ["worker", "peer_roles:hawser_app", "--processes", "1", "--slots", "400", "--log-level", "error"]
        words += ["--lease", str(SOON)] if self.safe else []
        os.execvpe(sys.executable, [sys.executable, "-m", "hawser.cli", *words], {**os.environ, "HAWSER_STORE": self.url})


def __getattr__(name):
    """`peer_roles:hawser_app`, which only Hawser's worker asks for."""
    if name != "hawser_app":
        raise AttributeError(name)
    return Hawser(os.environ["HAWSER_STORE"], safe=False).app()[0]


async def by_many(single, jobs, callers=64):
    """Where there is no call for many: so many callers at once."""
    left = iter(jobs)

    async def some():
        for job in left:
            await single(job)

    await asyncio.gather(*(some() for _ in range(callers)))


PEERS = {
    "hawser-postgres": Hawser,
    "pgqueuer": Pgqueuer,
    "procrastinate": Procrastinate,
    "oban": Oban,
    "chancy": Chancy,
    "hawser-redis": Hawser,
    "taskiq": Taskiq,
    "dramatiq": Dramatiq,
    "docket": Docket,
    "arq": Arq,
    "celery": Celery,
    "rq": Rq,
    "hawser-sqlite": Hawser,
    "huey": Huey,
    "litequeue": Litequeue,
}


async def role(what, peer, first, count, rate, ms):
    """Setup, or enqueue: prints the seconds that it took."""
    if what == "setup":
        await peer.setup()
        return 0.0
    await peer.opened()
    began = time.perf_counter()
    if what == "bulk":
        await peer.bulk([[number, time.time(), ms] for number in range(first, first + count)])
    else:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()) if rate else 0)
            await peer.single([first + number, time.time(), ms])
    took = time.perf_counter() - began
    await peer.closed()
    return took


def main():
    what, name, url, *rest = [word for word in sys.argv[1:] if word != "--safe"]
    peer = PEERS[name](url, "--safe" in sys.argv)
    if what == "work":
        peer.work()
        return
    first, count, rate, ms = (float(word) for word in [*rest, 0, 0, 0, 0][:4])
    print(json.dumps({"seconds": asyncio.run(role(what, peer, int(first), int(count), rate, int(ms)))}))


if __name__ == "__main__":
    # Functions are looked up by the name of their module, which must be this one in every process.
    sys.modules["peer_roles"] = sys.modules["__main__"]
    for each in (handled_in_thread, chancy_noop, docket_noop):
        each.__module__ = "peer_roles"
    main()
