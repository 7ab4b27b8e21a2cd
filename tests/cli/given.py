"""A store file with jobs in the states that a test wants."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hawser.client.portal import Portal
from hawser.job import Job, NewJob, new_job
from hawser.outcome import Done, Failed, Failure, Outcome
from hawser.store import AuditRecord, Beat, Settlement, Share
from hawser.stores.sqlite import SqliteStore

T = TypeVar("T")

HOSTILE = "[red]boo[/red] [link=http://evil]x[/link] :skull: \x1b[31mred\x1b[2J \x9b31m \u202etxt\rback\nsecond line\x07"
"""Markup, terminal sequences of both kinds, a bidi override, line ends, a bell."""


class Given:
    """Jobs in a SQLite file, made without the command line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.store = SqliteStore(path)
        self._portal = Portal()
        self._portal.call(self.store.open())

    def close(self) -> None:
        self._portal.call(self.store.close())
        self._portal.close()

    def ask(self, call: Coroutine[Any, Any, T]) -> T:
        return self._portal.call(call)

    def ready(self, task: str = "send_email", payload: Any = None, **fields: Any) -> str:
        job = new_job(task=task, body=msgspec.json.encode({} if payload is None else payload), **fields)
        self.put(job)
        return job.id

    def put(self, *jobs: NewJob) -> None:
        self._portal.call(self.store.enqueue(jobs))

    def running(self, task: str = "send_email", payload: Any = None, worker: str = "w1", **fields: Any) -> str:
        id = self.ready(task, payload, **fields)
        self._claim(id, fields.get("queue", "default"), worker)
        return id

    def done(self, task: str = "send_email", result: Any = None, **fields: Any) -> str:
        return self._ended(Done(None if result is None else msgspec.json.encode(result)), task, **fields)

    def failed(self, task: str = "send_email", error: str = "ValueError: no", **fields: Any) -> str:
        return self._ended(Failed(Failure(error, f"Traceback\n  {error}"), 600.0), task, **fields)

    def dead(self, task: str = "send_email", error: str = "ValueError: no such user", **fields: Any) -> str:
        return self._ended(Failed(Failure(error, f"Traceback\n  {error}")), task, max_attempts=1, **fields)

    def job(self, id: str) -> Job:
        job = self._portal.call(self.store.get(id))
        assert job is not None
        return job

    def audit(self) -> list[AuditRecord]:
        return self._portal.call(self.store.audit())

    def beat(self, *beats: Beat) -> None:
        self._portal.call(self.store.beat(beats))

    def _ended(self, outcome: Outcome, task: str, worker: str = "w1", **fields: Any) -> str:
        id = self.ready(task, **fields)
        lease = self._claim(id, fields.get("queue", "default"), worker)
        self._portal.call(self.store.settle((Settlement(id, lease, outcome),)))
        return id

    def _claim(self, id: str, queue: str, worker: str) -> int:
        [claimed] = self._portal.call(self.store.claim((Share(queue),), 1, worker, 60.0))
        assert claimed.id == id
        return claimed.lease
