"""The Django project under examples/: enqueue, a worker by its management command, results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "examples" / "django"


@pytest.fixture
def manage(tmp_path: Path):
    environ = {**os.environ, "SHOP_DATA": str(tmp_path), "PYTHONWARNINGS": "error::RuntimeWarning"}

    def run(*words: str) -> str:
        command = [sys.executable, "manage.py", *words]
        done = subprocess.run(command, cwd=PROJECT, env=environ, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


def script(text: str) -> list[str]:
    return ["shell", "-v", "0", "-c", textwrap.dedent(text)]


def test_tasks_are_enqueued_run_and_their_results_read(manage):
    ids = json.loads(
        manage(
            *script("""
            import json
            from datetime import timedelta
            from django.utils import timezone
            from shop.tasks import charge, pack, send_receipt
            made = [send_receipt.enqueue(17, to="ann@example.com"), pack.enqueue(17), charge.enqueue(17)]
            made.append(pack.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(18))
            assert {result.status for result in made} == {"READY"}
            print(json.dumps([result.id for result in made]))
            """)
        )
    )
    manage("hawser_worker", "--burst", "--slots", "4")
    manage(
        *script(f"""
        import asyncio
        from shop.tasks import charge, pack, send_receipt
        mail, packed, charged, later = {ids!r}
        result = send_receipt.get_result(mail)
        assert (result.status, result.return_value) == ("SUCCESSFUL", "receipt of order 17 to ann@example.com")
        assert (result.args, result.kwargs, result.attempts) == ([17], {{"to": "ann@example.com"}}, 1)
        assert result.enqueued_at and result.started_at and result.finished_at
        assert asyncio.run(pack.aget_result(packed)).return_value == {{"order": 17, "attempt": 1}}
        failed = charge.get_result(charged)
        assert failed.status == "FAILED"
        [error] = failed.errors
        assert error.exception_class is ValueError and "order 17 has no price" in error.traceback
        assert pack.get_result(later).status == "READY"
        from shop import tasks
        try:
            pack.get_result("01a1e6ad-1bd8-7f9c-8edc-cfa6abeb53f5")
        except Exception as error:
            assert type(error).__name__ == "TaskResultDoesNotExist"
        """)
    )


def test_a_job_exists_after_the_commit_and_not_after_a_rollback(manage):
    manage(
        *script("""
        import threading
        from django.db import transaction
        from shop.tasks import pack
        backend = pack.get_backend()
        made = pack.enqueue(0)
        assert made.enqueued_at and made == pack.get_result(made.id)
        backend.app.cancel(made.id)
        with transaction.atomic():
            result = pack.enqueue(1)
            assert result.enqueued_at is None
            assert backend.app.stats().ready == 0, "not before the commit"
        assert backend.app.stats().ready == 1
        assert pack.get_result(result.id).status == "READY"
        try:
            with transaction.atomic():
                pack.enqueue(2)
                raise ValueError
        except ValueError:
            pass
        assert backend.app.stats().ready == 1
        others = []
        thread = threading.Thread(target=lambda: others.append(pack.get_backend()))
        thread.start()
        thread.join()
        assert others[0].app is backend.app, "one app for all threads"
        """)
    )


def test_priorities_and_bad_options(manage):
    manage(
        *script("""
        from hawser.contrib.django.backend import HawserBackend, priority_of
        assert [priority_of(n) for n in (-100, -50, 0, 50, 100)] == [0, 3, 5, 7, 9]
        from django.core.exceptions import ImproperlyConfigured
        for options in ({"stor": "x"}, {"enqueue": "later"}):
            try:
                HawserBackend("x", {"OPTIONS": options})
            except ImproperlyConfigured as error:
                assert "TASKS['x']" in str(error)
            else:
                raise AssertionError(options)
        """)
    )
