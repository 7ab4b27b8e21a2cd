"""The contract can be run on broken stores, to see that it notices: HAWSER_MUTANT names one of `tests.mutants`."""

from __future__ import annotations

import pytest

from tests.mutants import planted, planted_by_environment


@pytest.fixture(autouse=True)
def mutant(request):
    """The bug that the test asks for, or the environment."""
    name = getattr(request, "param", None)
    with planted(name) if name else planted_by_environment():
        yield name
