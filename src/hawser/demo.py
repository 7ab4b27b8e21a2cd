"""A small shop, for `hawser demo`: mails, pictures, payments that fail at times, a webhook that always does."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Final

from hawser.app import Hawser
from hawser.backoff import Exponential, Fixed
from hawser.context import Context
from hawser.decision import Drop, Snooze
from hawser.job import NewJob
from hawser.schedule.rule import Every

app = Hawser()
"""Its store is $HAWSER_STORE."""

PARTNER: Final = os.environ.get("HAWSER_DEMO_PARTNER")
"""A file that is there once the partner's server listens again, so that an incident can be played to its end. It never does
unless one is named."""


@app.task(queue="mail")
async def send_email(to: str, template: str = "welcome") -> None:
    """Fast, and async: hundreds of them wait for the mail server at once."""
    await asyncio.sleep(random.uniform(0.005, 0.05))


@app.task(queue="images")
def resize_picture(picture: str, width: int) -> dict[str, int]:
    """A plain function: it runs in a thread."""
    time.sleep(random.uniform(0.05, 0.3))
    return {"width": width}


@app.task(queue="payments", priority=9, max_attempts=6, backoff=Exponential(base=0.5, cap=5), confirm_replay=True)
async def charge_card(ctx: Context, order: int, cents: int) -> str:
    """The bank fails one time in three; the retry gets through. When it is paid, the receipt follows in the same write."""
    await asyncio.sleep(random.uniform(0.05, 0.2))
    if random.random() < 0.33:
        raise ConnectionError("the bank did not answer")
    ctx.enqueue(send_email.job(f"customer{order}@example.com", template="receipt"))
    return f"paid {cents / 100:.2f}"


@app.task(queue="payments")
async def ship_order(order: int) -> str:
    """Not every order is packed yet: then it is looked at again, and no attempt is burned."""
    if random.random() < 0.5:
        raise Snooze(1.0, "not packed yet")
    return "shipped"


def partner_listens() -> bool:
    return PARTNER is not None and Path(PARTNER).exists()


@app.task(queue="webhooks", max_attempts=3, backoff=Fixed(every=0.5))
async def call_webhook(url: str) -> None:
    """No server listens there: dead after three attempts, and kept for an operator to look at."""
    if not partner_listens():
        raise ConnectionRefusedError(f"no server listens at {url}")


@app.task(queue="webhooks")
async def close_account(account: int) -> None:
    """Knows at once that trying again cannot help."""
    raise Drop(f"account {account} does not exist")


@app.task(queue="mail", schedule=Every(seconds=2))
async def send_digest(ctx: Context) -> str:
    """No code enqueues it: the schedule makes one job at each tick, by any number of workers."""
    return f"what happened until {ctx.job.tick:%H:%M:%S}"


def some_work(number: int) -> list[NewJob]:
    """The next few jobs of the shop."""
    jobs: list[NewJob] = [send_email.job(f"user{number}-{i}@example.com") for i in range(4)]
    jobs.append(resize_picture.job(f"picture-{number}.jpg", width=640))
    if number % 2 == 0:
        jobs.append(charge_card.using(key=f"order-{number}", key_ttl="forever").job(number, cents=random.randint(500, 20_000)))
    if number % 3 == 0:
        jobs.append(ship_order.job(number))
    if number % 20 == 0:
        jobs.append(call_webhook.job("http://old-partner.example.com/hook"))
    if number % 500 == 25:
        jobs.append(close_account.job(number))
    return jobs
