"""The pytest plugin: `hawser_app`, an app for one test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hawser.testing.app import AppUnderTest


@pytest.fixture
def hawser_app() -> Iterator[AppUnderTest]:
    """A Hawser on memory, whose clock the test moves. Register tasks on it, or let it `adopt` your app."""
    from hawser.testing.app import AppUnderTest  # noqa: PLC0415  # every pytest run loads this module

    with AppUnderTest() as app:
        yield app
