"""The Django project under examples/: enqueue, a worker by its management command, results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.postgres import emptied, own_schema, server, versions, with_schema

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
        thread.join(30)
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


PARCELS = """
import os
from hawser import Drop, Snooze

try:
    from django.tasks import task
    from django.tasks.signals import task_finished, task_started
except ImportError:
    from django_tasks import task
    from django_tasks.signals import task_finished, task_started
from django.dispatch import receiver


def note(word, result):
    with open(os.environ["SHOP_DATA"] + "/heard", "a") as file:
        print(word, result.task.name, result.status, len(result.errors), file=file)


@receiver(task_started)
def on_start(sender, task_result, **_):
    note("started", task_result)


@receiver(task_finished)
def on_finish(sender, task_result, **_):
    assert task_result.is_finished
    note("finished", task_result)


@task
def works():
    return 42


@task
async def drops():
    raise Drop("no such card")


@task(takes_context=True)
def snoozes(context):
    with open(os.environ["SHOP_DATA"] + "/snoozed", "a") as file:
        if file.tell():
            return
        file.write("once")
    raise Snooze(0)


@task
def fails():
    raise ValueError("no")
"""


@pytest.fixture
def manage_with(tmp_path: Path):
    """The project with settings of the test's own, and an app `parcels` beside its own."""

    def made(settings: str):
        (tmp_path / "parcels").mkdir()
        (tmp_path / "parcels" / "__init__.py").touch()
        (tmp_path / "parcels" / "tasks.py").write_text(PARCELS)
        own = f"from shop.settings import *\nINSTALLED_APPS.append('parcels')\n{textwrap.dedent(settings)}"
        (tmp_path / "own_settings.py").write_text(own)
        own_environ = {"DJANGO_SETTINGS_MODULE": "own_settings", "PYTHONPATH": str(tmp_path), "SHOP_DATA": str(tmp_path)}

        def run(*words: str) -> str:
            command = [sys.executable, "manage.py", *words]
            done = subprocess.run(
                command, cwd=PROJECT, env={**os.environ, **own_environ}, capture_output=True, text=True, timeout=90, check=False
            )
            assert done.returncode == 0, done.stderr[-3000:]
            return done.stdout

        return run

    return made


def test_a_task_has_finished_when_the_store_says_so(manage_with, tmp_path: Path):
    """A drop ends a task before its last attempt, and a snooze on its last one does not."""
    run = manage_with("""
        options = TASKS["default"]["OPTIONS"]
        options["defaults"] = {"max_attempts": 2, "timeout": 60}
        options["tasks"] = {"parcels.tasks.fails": {"max_attempts": 1}, "parcels.tasks.snoozes": {"max_attempts": 1}}
    """)
    run(*script("from parcels import tasks; [task.enqueue() for task in (tasks.works, tasks.drops, tasks.snoozes, tasks.fails)]"))
    run("hawser_worker", "--burst", "--slots", "4")
    heard = (tmp_path / "heard").read_text().splitlines()
    assert sorted(line for line in heard if line.startswith("finished")) == [
        "finished drops FAILED 1",
        "finished fails FAILED 1",
        "finished snoozes SUCCESSFUL 0",
        "finished works SUCCESSFUL 0",
    ]
    assert sum(line.startswith("started snoozes") for line in heard) == 2


def test_the_end_of_a_task_that_is_not_kept_is_told(manage_with, tmp_path: Path):
    run = manage_with("""
        from hawser import Retention
        TASKS["default"]["OPTIONS"]["defaults"] = {"retention": Retention(done=0)}
    """)
    run(*script("from parcels import tasks; tasks.works.enqueue()"))
    run("hawser_worker", "--burst")
    assert "finished works SUCCESSFUL 0" in (tmp_path / "heard").read_text()


@pytest.mark.parametrize("version", versions())
async def test_in_a_transaction_of_postgresql_a_task_exists_exactly_if_it_commits(version: str, manage_with, tmp_path: Path):
    url = with_schema(server(version), f"{own_schema()}_django")
    await emptied(url)
    parts = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    run = manage_with(f"""
        DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres",
            "HOST": {parts["host"]!r}, "PORT": {parts.get("port", "")!r}}}}}
        TASKS["default"]["OPTIONS"].update(store={url!r}, enqueue="in_transaction")
    """)
    exists_exactly_if_it_commits(run, tmp_path)


def test_in_a_transaction_of_sqlite_a_task_exists_exactly_if_it_commits(manage_with, tmp_path: Path):
    """The store is in the file that is Django's database."""
    run = manage_with(f"""
        TASKS["default"]["OPTIONS"].update(store="sqlite:///{tmp_path}/shop.db", enqueue="in_transaction")
    """)
    exists_exactly_if_it_commits(run, tmp_path)


def exists_exactly_if_it_commits(run, tmp_path: Path) -> None:
    out = run(
        *script("""
        from django.db import connection, transaction
        from parcels import tasks
        app = tasks.works.get_backend().app
        with transaction.atomic():
            result = tasks.works.enqueue()
            assert result.enqueued_at is None
            assert app.stats().ready == 0, "nobody sees it before the commit"
        assert app.stats().ready == 1 and tasks.works.get_result(result.id).status == "READY"
        try:
            with transaction.atomic():
                tasks.works.enqueue()
                raise ValueError
        except ValueError:
            pass
        with transaction.atomic():
            try:
                with transaction.atomic():
                    tasks.works.enqueue()
                    raise ValueError
            except ValueError:
                pass  # the savepoint goes, the transaction goes on
        assert app.stats().ready == 1, "a rollback leaves nothing"
        tasks.works.enqueue()  # autocommit
        assert app.stats().ready == 2
        print(result.id)
        """)
    )
    run("hawser_worker", "--burst")
    run(*script(f"from parcels import tasks; assert tasks.works.get_result({out.strip()!r}).return_value == 42"))
    assert (tmp_path / "heard").read_text().count("finished works SUCCESSFUL") == 2
