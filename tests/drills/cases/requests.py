"""Requests whose answer gets lost with the server, sent again with the same Idempotency-Key or id."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from hawser import Hawser
from hawser.value.ids import new_id
from tests.api.processes import Served
from tests.drills.case import Case, Seen
from tests.drills.places import Place, PostgresPlace, SqlitePlace

SENDERS, EACH, KILLS = 8, 60, 5


class _Sender(threading.Thread):
    """Sends its requests one after the other, each until it is answered: half by key, half by id."""

    def __init__(self, server: Served, number: int) -> None:
        super().__init__()
        self._server = server
        self._number = number
        self._client = httpx.Client(timeout=10)
        self.answered: list[str] = []
        self.tries = 0
        self.found_again = 0
        """Answers that said that the job was there already: the first answer got lost."""

    def run(self) -> None:
        for n in range(EACH):
            body: dict[str, object] = {"task": "charge", "payload": {"order": self._number * EACH + n}}
            headers = {}
            if n % 2:
                body["id"] = new_id()
            else:
                headers["Idempotency-Key"] = f"{self._number}-{n}"
            self._send(body, headers)

    def _send(self, body: dict[str, object], headers: dict[str, str]) -> None:
        while True:
            self.tries += 1
            try:
                answer = self._client.post(f"{self._server.url}/jobs", json=body, headers=headers)
            except httpx.HTTPError:
                time.sleep(0.02)
                continue
            if answer.status_code in (200, 201):
                self.answered.append(answer.json()["id"])
                self.found_again += not answer.json()["created"]
                return
            assert answer.status_code == 503, answer.text
            time.sleep(0.02)


def _killed_under_load(folder: Path, make: Callable[[], Place]) -> Seen:
    place = make()
    server = Served(folder, store=place.url(timeout=10))
    try:
        server.start()
        senders = [_Sender(server, number) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        chance = random.Random(13)
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.1, 0.4))
            server.kill()
            server.start()
        for sender in senders:
            sender.join(60)
        stuck = sum(sender.is_alive() for sender in senders)
        app = Hawser(place.url(timeout=10))
        jobs = {job.id: job.payload["order"] for job in app.find(limit=1000).jobs}
        app.close()
    finally:
        server.end()
        place.close()
    answered = [id for sender in senders for id in sender.answered]
    lost = len(set(answered) - jobs.keys())
    twice = len(jobs) - len(set(jobs.values()))
    figures = (
        f"{SENDERS * EACH} requests, {KILLS} kills of the server, {sum(s.tries for s in senders)} tries, "
        f"{sum(s.found_again for s in senders)} answers lost and found again: {len(jobs)} jobs, {twice} twice, {lost} lost"
    )
    return Seen(held=not stuck and not lost and not twice and len(jobs) == SENDERS * EACH, text=figures)


_FAULT = "the HTTP server is killed again and again while requests are under way; each is repeated until it is answered"
_WANTED = "one job for each Idempotency-Key and each id, and every answered job is there"

CASES = [
    Case(
        "server-killed-and-repeated",
        "sqlite",
        _FAULT,
        _WANTED,
        lambda folder: _killed_under_load(folder, lambda: SqlitePlace(folder)),
    ),
    Case(
        "server-killed-and-repeated-postgres",
        "postgres",
        _FAULT,
        _WANTED,
        lambda folder: _killed_under_load(folder, PostgresPlace),
    ),
]
