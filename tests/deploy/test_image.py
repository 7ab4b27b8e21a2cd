"""What containers and pods run, one command after the other: in a folder with the app alone and no environment but theirs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from hawser import Hawser
from tests.deploy.test_containers import COMPOSE, DEPLOY, MANIFESTS, deployments
from tests.postgres import new_schema, server, versions, with_schema
from tests.worker.processes import eventually

IMAGE = (DEPLOY / "Dockerfile").read_text()


def words_of(instruction: str) -> list[str]:
    """The command of the instruction in the Dockerfile."""
    [line] = [line for line in IMAGE.splitlines() if line.startswith(instruction)]
    words: list[str] = json.loads(line[line.index("[") :])
    return words


def container(name: str) -> dict[str, Any]:
    [found] = [each for each in deployments() if each["metadata"]["name"] == name]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]["containers"][0]
    return spec


class Box:
    """A folder and an environment as the image has them, on a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = with_schema(server(versions()[-1]), new_schema())
        set_ = dict(re.findall(r"(\w+)=(\S+)", re.findall(r"^ENV (.+)$", IMAGE, re.MULTILINE)[0]))
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        self.environ = {**set_, "PATH": path, "HAWSER_STORE": self.store, "HOME": str(folder)}
        self.ports = {"8080": free_port(), "9100": free_port()}
        shutil.copy(DEPLOY.parent / re.findall(r"^ARG APP=(\S+)$", IMAGE, re.MULTILINE)[0], folder)

    def run(self, words: list[str]) -> str:
        done = subprocess.run(
            self._here(words), cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def started(self, words: list[str]) -> Iterator[None]:
        """Run until the block is left; SIGTERM must end it with code 0 then."""
        log = self.folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._here(words), cwd=self.folder, env=self.environ, stdout=out, stderr=out, start_new_session=True
            )
        try:
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)

    def is_healthy(self, check: list[str]) -> bool:
        return subprocess.run(self._here(check), env=self.environ, capture_output=True, timeout=30, check=False).returncode == 0

    def answers(self, path: str, port: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[port]}{path}", timeout=5) as answer:
                return int(answer.status) == 200
        except (urllib.error.URLError, ConnectionError):
            return False

    def _here(self, words: list[str]) -> list[str]:
        """With the store of the test and free ports in place of those that are written."""
        words = [re.sub(r"^postgresql://.+", self.store, word) for word in words]
        return [re.sub("8080|9100", lambda port: self.ports[port[0]], word) for word in words]


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_the_commands_of_the_compose_file_work_one_after_the_other(box: Box):
    services = COMPOSE["services"]
    box.run(services["migrate"]["command"])
    told = re.search(r"migrate (hawser keys create .+)", (DEPLOY / "compose" / "compose.yaml").read_text())
    assert told is not None
    assert box.run(told[1].split()).startswith("hawser_")
    with box.started(services["server"]["command"]):
        eventually(lambda: box.is_healthy(services["server"]["healthcheck"]["test"][1:]), 30)
    with box.started(services["worker"]["command"]):
        eventually(lambda: box.is_healthy(words_of("HEALTHCHECK")), 30)


def test_the_command_of_the_image_runs_jobs(box: Box):
    box.run(COMPOSE["services"]["migrate"]["command"])
    with Hawser(box.store) as app, box.started(words_of("CMD")):
        id = box.run(["hawser", "enqueue", "shop:app", "send_email", "--json", '{"to": "ann@example.com"}']).strip()
        eventually(lambda: app.get(id).state == "done", 30)
        eventually(lambda: box.is_healthy(words_of("HEALTHCHECK")), 30)


def test_the_commands_of_the_manifests_work_one_after_the_other(box: Box):
    [job] = [each for each in MANIFESTS if each["kind"] == "Job"]
    box.run(job["spec"]["template"]["spec"]["containers"][0]["command"])
    told = re.search(r"-- (hawser keys create .+)", (DEPLOY / "kubernetes" / "hawser.yaml").read_text())
    assert told is not None
    box.run(told[1].split())
    for name, port in (("hawser-worker-mail", "9100"), ("hawser", "8080")):
        spec = container(name)
        with box.started(spec["command"]):
            for probe in ("livenessProbe", "readinessProbe"):
                eventually(partial(box.answers, spec[probe]["httpGet"]["path"], port), 30)


def test_a_server_without_a_key_says_how_to_make_one(box: Box):
    box.run(COMPOSE["services"]["migrate"]["command"])
    words = box._here(COMPOSE["services"]["server"]["command"])
    done = subprocess.run(words, cwd=box.folder, env=box.environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "hawser keys create" in done.stderr


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: f"{manifest['kind']}-{manifest['metadata']['name']}")
@pytest.mark.parametrize("version", ["1.29", "1.33"])
def test_manifests_fit_the_schemas_of_kubernetes(manifest: dict[str, Any], version: str):
    kubernetes_validate.validate(manifest, version, strict=True)


def test_a_wrong_manifest_would_be_noticed():
    [wrong, *_] = deployments()
    wrong = {**wrong, "spec": {**wrong["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.33", strict=True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path):
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE))
    said = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


def has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=30, check=False).returncode == 0


@pytest.mark.skipif(not has_compose(), reason="docker has no compose here")
def test_docker_reads_the_compose_file():
    words = ["docker", "compose", "-f", str(DEPLOY / "compose" / "compose.yaml"), "config", "--quiet"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
