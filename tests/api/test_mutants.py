"""The door's own test: of every planted bug it is known which test notices it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from hawser.store.api_key import Role
from tests.api import test_access, test_keyless, test_limits
from tests.api.conftest import client_of, make_app
from tests.mutants import ADMISSION, planted

MODULES = (test_access, test_keyless, test_limits)

NOTICED_BY = {
    "roles_are_not_asked": "test_a_role_may_what_the_table_says_and_nothing_else",
    "tasks_are_not_asked": "test_a_key_may_enqueue_only_its_tasks",
    "secret_is_not_compared": "test_another_secret_with_the_same_public_part_is_nobody",
    "keys_are_read_once": "test_a_revoked_key_is_refused_within_a_second",
    "runs_belong_to_every_key": "test_a_run_belongs_to_the_key_that_claimed_it",
    "sockets_of_others_are_ours": "test_another_user_on_this_machine_needs_a_key_or_the_token",
    "proxies_of_our_user_are_ours": "test_a_process_of_our_own_user_that_listens_may_speak_for_others",
    "rates_are_not_held": "test_a_flood_of_one_key_is_refused_and_the_others_feel_nothing",
}


@pytest.mark.parametrize("mutant", ADMISSION)
async def test_a_planted_bug_is_noticed(mutant: str):
    app = make_app("memory://")
    api = app.asgi(require_key=True, upkeep=False)
    [test] = [vars(module)[NOTICED_BY[mutant]] for module in MODULES if NOTICED_BY[mutant] in vars(module)]
    async with client_of(api) as closed:
        given: dict[str, Any] = {
            "closed": closed,
            "store": await app.store(),
            "app": app,
            "role": Role.VIEWER,
            "name": "POST /jobs",
        }
        asked = {name: given[name] for name in inspect.signature(test).parameters}
        with planted(mutant), pytest.raises(AssertionError):
            await test(**asked)
    await api.stop()
