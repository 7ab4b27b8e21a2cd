"""Many processes on one schema, some of them killed at any moment."""

import asyncio
from pathlib import Path

import pytest

from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.stores.crowd import crowd


@pytest.mark.parametrize("version", versions())
def test_eight_processes_share_a_schema_and_a_quarter_of_them_is_killed(version: str, tmp_path: Path):
    url = with_schema(server(version), f"{own_schema()}_crowd")
    asyncio.run(emptied(url))
    crowd(url, tmp_path)
