"""An embedded worker hangs up when it ends, also what its maintenance has opened on a loop of its own."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path

import pytest

from hawser import Hawser
from tests.worker.conftest import ended
from tests.worker.test_breaker import url_of


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_an_embedded_worker_leaves_no_connection_open(kind: str, tmp_path: Path) -> None:
    async def work() -> None:
        app = Hawser(await url_of(kind, tmp_path))

        @app.task
        async def ship() -> None: ...

        async with app.worker():
            await ended(app, (await ship.aenqueue()).id)
        await app.aclose()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # what earlier tests have left
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(work())
        gc.collect()
    assert [str(each.message) for each in heard] == []
