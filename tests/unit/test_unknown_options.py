"""An option that does not exist is refused wherever options are taken, with the name that was probably meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hawser import ConfigError, Hawser, InvalidJob
from hawser.cli.program import hawser as program
from hawser.config import Config, load
from hawser.errors import did_you_mean
from hawser.stores import make_store


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("drain_timout", ("drain_timeout", "lease"), "did you mean 'drain_timeout'?"),
        ("lease_duration_sec", ("drain_timeout", "lease"), "did you mean 'lease'?"),
        ("timeout", ("drain_timeout", "lease"), "did you mean 'drain_timeout'?"),
        ("LEASE", ("drain_timeout", "lease"), "did you mean 'lease'?"),
        ("zzz", ("drain_timeout", "lease"), "known are drain_timeout, lease"),
    ],
)
def test_the_name_that_was_meant_is_found(name: str, known: tuple[str, ...], hint: str):
    assert did_you_mean(name, known) == hint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lease_duration_sec": 300}, "lease_duration_sec: a worker has no such option; did you mean 'lease'"),
        ({"drain_timout": 1}, "drain_timout: a worker has no such option; did you mean 'drain_timeout'"),
        ({"zzz": None}, "zzz: a worker has no such option; known are queues, slots"),
    ],
)
def test_a_worker_refuses_what_it_does_not_know(options: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        Hawser("memory://").run_worker(**options)


def test_the_api_refuses_what_it_does_not_know():
    with pytest.raises(ConfigError, match="require_keys: the API has no such option; did you mean 'require_key'"):
        Hawser("memory://").asgi(require_keys=True)  # type: ignore[call-arg]


def test_an_app_refuses_what_it_does_not_know():
    with pytest.raises(ConfigError, match="max_paylod: no such setting; did you mean 'max_payload'"):
        Hawser("memory://", max_paylod=5)  # type: ignore[call-arg]


def test_a_task_refuses_what_it_does_not_know():
    with pytest.raises(ConfigError, match="task 'f': priorty: no such option; did you mean 'priority'"):

        @Hawser("memory://").task(priorty=5)  # type: ignore[call-overload,untyped-decorator,unused-ignore]
        def f() -> None: ...


def test_a_job_refuses_what_it_does_not_know():
    app = Hawser("memory://")

    @app.task
    def f() -> None: ...

    for make in (lambda: f.using(priorty=5), lambda: app.enqueue("f", {}, priorty=5)):  # type: ignore[call-arg]
        with pytest.raises(InvalidJob, match="priorty: no such option; did you mean 'priority'"):
            make()
    assert app.stats().ready == 0


def test_a_filter_refuses_what_it_does_not_know():
    with pytest.raises(ConfigError, match="find: no such filter 'quue'; did you mean 'queue'"):
        Hawser("memory://").find(quue="mail")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://?durabilty=relaxed", "unknown setting 'durabilty' in the URL; memory:// takes journal=FOLDER"),
        ("sqlite:///jobs.db?durabilty=relaxed", "unknown setting 'durabilty' in the URL; did you mean 'durability'"),
        ("sqlite:///jobs.db?enqueue_timout=1", "unknown setting 'enqueue_timout' in the URL; did you mean 'enqueue_timeout'"),
        ("sqlite:///jobs.db?zzz=1", "unknown setting 'zzz' in the URL; known are durability, timeout, enqueue_timeout"),
    ],
)
def test_a_store_refuses_what_it_does_not_know(url: str, words: str):
    with pytest.raises(ConfigError, match=f"store: {words}"):
        make_store(url)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HAWSER_MAX_PAYLAOD", "HAWSER_MAX_PAYLOAD"),
        ("HAWSER_RETENTION_DONE", "HAWSER_RETENTION"),
        ("HAWSER_STOER", "HAWSER_STORE"),
    ],
)
def test_a_misspelt_variable_is_refused(name: str, meant: str):
    with pytest.raises(ConfigError, match=f"{name}: no such variable; did you mean '{meant}'"):
        load({}, {name: "5"})


KUBERNETES = (
    "HAWSER_PORT",
    "HAWSER_SERVICE_HOST",
    "HAWSER_SERVICE_PORT",
    "HAWSER_SERVICE_PORT_HTTP",
    "HAWSER_PORT_8080_TCP",
    "HAWSER_PORT_8080_TCP_ADDR",
    "HAWSER_STORE_SERVICE_HOST",
    "HAWSER_STORE_PORT",
    "HAWSER_WORKER_PORT_8080_TCP_PROTO",
    "HAWSER_WORKER_SERVICE_PORT",
)
"""What Kubernetes puts into every pod beside services called hawser, hawser-store and hawser-worker."""


@pytest.mark.parametrize("name", [*KUBERNETES, "HAWSER_IMAGE", "HAWSER_TEST_REDIS", "HAWSER_LAB_FOLDER", "HAWSER_DEBUG"])
def test_variables_of_others_are_left_alone(name: str):
    assert load({}, {name: "x"}) == Config()


def run(*arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(program, arguments, env=environ)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        ("worker", "HAWSER_WORKER_SLOT", "HAWSER_WORKER_SLOT: no such variable; did you mean 'HAWSER_WORKER_SLOTS'?"),
        ("worker", "HAWSER_WORKER_LEASE_SEC", "HAWSER_WORKER_LEASE_SEC: no such variable; did you mean 'HAWSER_WORKER_LEASE'?"),
        ("serve", "HAWSER_SERVE_ZZZ", "HAWSER_SERVE_ZZZ: no such variable; known are HAWSER_SERVE_HOST, "),
    ],
)
def test_a_variable_that_no_option_has_is_refused(command: str, name: str, words: str):
    code, said = run(command, "nowhere:app", environ={name: "1"})
    assert code == 2
    assert words in said


@pytest.mark.parametrize("name", [name for name in KUBERNETES if "WORKER" in name])
def test_the_variables_of_a_service_of_that_name_are_left_alone(name: str):
    _, said = run("worker", "nowhere:app", environ={name: "tcp://10.0.0.1:80"})
    assert name not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[worker]\nlese = 5\n", "has the unknown key worker.lese; did you mean 'lease'?"),
        ("[workr]\nlease = 5\n", "has the unknown table workr; did you mean 'worker'?"),
        ("lease = 5\n", "has the unknown table lease; known are worker"),
        ("worker = 5\n", "worker is not a table; write [worker] above its options"),
    ],
)
def test_a_file_with_what_no_option_has_is_refused(tmp_path: Path, text: str, words: str):
    file = tmp_path / "hawser.toml"
    file.write_text(text)
    code, said = run("worker", "nowhere:app", "--config", str(file))
    assert code == 2
    assert words in said
