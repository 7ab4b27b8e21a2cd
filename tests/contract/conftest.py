"""The contract can be run on broken stores, to see that it notices: HAWSER_MUTANT names one of `tests.mutants`."""

from __future__ import annotations

import pytest

from tests.mutants import planted_by_environment


@pytest.fixture(autouse=True)
def mutant():
    with planted_by_environment():
        yield
