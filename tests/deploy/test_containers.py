"""The compose file, the image and the manifests: commands that exist, pinned versions, grace that is long enough."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from hawser.cli.program import hawser as program

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "hawser.yaml").read_text()))


def deployments() -> list[dict[str, Any]]:
    return [each for each in MANIFESTS if each["kind"] == "Deployment"]


def commands() -> list[list[str]]:
    found = [service["command"] for service in COMPOSE["services"].values() if "command" in service]
    found += [each["spec"]["template"]["spec"]["containers"][0]["command"] for each in deployments()]
    found.append(re.findall(r'"([^"]+)"', (DEPLOY / "Dockerfile").read_text().rpartition("\nCMD ")[2]))
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_and_their_options_exist(words: list[str]):
    assert words[0] == "hawser"
    command = program.get_command(click.Context(program), words[1])
    assert command is not None
    known = {option for param in command.params if isinstance(param, click.Option) for option in param.opts}
    assert {word for word in words if word.startswith("--")} <= known
    with command.make_context("hawser", [word for word in words[2:] if not word.startswith("$")]):
        pass  # values are of the right kind, too


def test_images_are_pinned():
    images = [service["image"] for service in COMPOSE["services"].values() if "build" not in service]
    images += re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert len(images) >= 5
    assert [image for image in images if not re.search(r":v?\d+\.\d+", image)] == []


def test_the_image_does_not_run_as_root_and_looks_after_its_health():
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    assert "HEALTHCHECK" in text
    source = re.search(r"^ARG APP=(\S+)$", text, re.MULTILINE)
    assert source is not None
    assert (DEPLOY.parent / source[1]).exists()


def test_the_platform_waits_longer_than_the_drain():
    def drain(words: list[str]) -> float:
        return float(words[words.index("--drain-timeout") + 1])

    worker = COMPOSE["services"]["worker"]
    assert float(worker["stop_grace_period"].rstrip("s")) > drain(worker["command"]) + 2
    [pods] = [each["spec"]["template"]["spec"] for each in deployments() if "worker" in each["metadata"]["name"]]
    container = pods["containers"][0]
    before = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pods["terminationGracePeriodSeconds"] > before + drain(container["command"]) + 2


def test_the_manifests_fit_together():
    kinds = sorted(each["kind"] for each in MANIFESTS)
    assert kinds == ["Deployment", "Deployment", "Job", "PodDisruptionBudget", "Service"]
    labels = {each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in deployments()}
    for each in deployments():
        assert each["spec"]["selector"]["matchLabels"] == labels[each["metadata"]["name"]]
    for each in MANIFESTS:
        if each["kind"] == "PodDisruptionBudget":
            assert each["spec"]["selector"]["matchLabels"] == labels[each["metadata"]["name"]]
        if each["kind"] == "Service":
            assert each["spec"]["selector"] == labels[each["metadata"]["name"]]
    scaled = next(yaml.safe_load_all((DEPLOY / "kubernetes" / "keda.yaml").read_text()))
    assert scaled["spec"]["scaleTargetRef"]["name"] in labels


def test_files_that_the_compose_file_mounts_are_there():
    folder = DEPLOY / "compose"
    mounts = [each.split(":")[0] for service in COMPOSE["services"].values() for each in service.get("volumes", [])]
    paths = [mount for mount in mounts if mount.startswith(".")]
    assert len(paths) == 5
    assert [path for path in paths if not (folder / path).exists()] == []
