"""The memory store keeps the contract."""

import pytest

from hawser.testing.contract import *  # noqa: F403  # the tests of the contract become this module's


@pytest.fixture
def url():
    return "memory://"
