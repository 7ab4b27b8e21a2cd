"""What stands in deploy/ and the runbook, against the code: names of metrics, routes, options, and Prometheus' own checks."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hawser.api.routes import ROUTES
from hawser.telemetry.metric import METRICS
from tests.docs.documents import ROOT
from tests.docs.test_documents import _check

DEPLOY = ROOT / "deploy"
RUNBOOK = ROOT / "docs" / "runbook.md"
SPEAKING = [
    *sorted(path for path in DEPLOY.rglob("*") if path.is_file()),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
]

KNOWN = {each.name for each in METRICS} | {
    f"{each.name}_{part}" for each in METRICS if each.kind == "histogram" for part in ("bucket", "sum", "count")
}
TABLES = {"hawser_job", "hawser_depth", "hawser_tally", "hawser_attempt", "hawser_key", "hawser_lane"}
"""What the documents call tables of the stores."""
OTHERS = {"hawser_app", "hawser_worker"}
"""The fixture of the pytest plugin, and the command of the Django app."""


def names(text: str) -> set[str]:
    return set(re.findall(r"\bhawser_[a-z_]+[a-z]", text))


@pytest.mark.parametrize("path", SPEAKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_metric_that_is_spoken_of_exists(path: Path):
    unknown = names(path.read_text(encoding="utf-8")) - KNOWN - OTHERS
    if path.suffix == ".md":
        unknown = {name for name in unknown if not any(name.startswith(table) for table in TABLES)}
    assert unknown == set()


def test_every_metric_is_explained():
    told = names((ROOT / "docs" / "guides" / "operating.md").read_text(encoding="utf-8"))
    assert {each.name for each in METRICS} - told == set()


def test_the_dashboard_shows_most_of_them():
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names((DEPLOY / "grafana" / "hawser.json").read_text())}
    assert len(shown) >= 18


def test_the_dashboard_is_json_with_queries_in_every_panel():
    dashboard = json.loads((DEPLOY / "grafana" / "hawser.json").read_text())
    assert all(panel["targets"] and all(target["expr"] for target in panel["targets"]) for panel in dashboard["panels"])
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", (DEPLOY / "prometheus" / "rules.yml").read_text())


def test_every_alert_has_its_entry_in_the_runbook_and_its_test():
    told = re.findall(r"^## (Hawser\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert told == alerts()
    tried = re.findall(r"alertname: (\w+)", (DEPLOY / "prometheus" / "tests.yml").read_text())
    assert set(tried) == set(alerts())


def test_every_entry_says_what_to_look_at_and_what_to_do():
    entries = RUNBOOK.read_text(encoding="utf-8").split("\n## ")[1:]
    assert [
        entry.splitlines()[0] for entry in entries if not all(f"**{word}**" in entry for word in ("Means", "Look", "Do"))
    ] == []


def test_labels_in_the_rules_are_labels_of_the_metrics():
    labels = {each.name: {*each.labels, "le", "instance"} for each in METRICS}
    for path in (DEPLOY / "prometheus" / "rules.yml", DEPLOY / "grafana" / "hawser.json"):
        for name, inside in re.findall(r"(hawser_[a-z_]+[a-z]){([^}]*)}", path.read_text().replace('\\"', '"')):
            known = labels.get(name) or labels[re.sub(r"_(bucket|sum|count)$", "", name)]
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside)) <= known, f"{path.name}: {name}"


def test_routes_in_the_rules_are_routes():
    rules = (DEPLOY / "prometheus" / "rules.yml").read_text()
    named = {route for found in re.findall(r'route=~"([^"]+)"', rules) for route in found.split("|")}
    assert named <= {route.path for route in ROUTES}


def test_scalers_ask_for_what_stats_answer():
    text = (DEPLOY / "kubernetes" / "keda.yaml").read_text()
    assert "/stats?queue=" in text
    from hawser.api.views import StatsOut

    assert set(re.findall(r"valueLocation: (\w+)", text)) <= set(StatsOut.__struct_fields__)


@pytest.mark.parametrize("path", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda path: path.name)
def test_units_start_commands_that_exist(path: Path):
    found = re.search(r"^ExecStart=\S+/hawser (.+)$", path.read_text(), re.MULTILINE)
    assert found is not None
    _check(shlex.split(found[1]))


PROMTOOL = shutil.which("promtool", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool could not be fetched by script/setup")
@pytest.mark.parametrize("words", ["check rules rules.yml", "test rules tests.yml"])
def test_prometheus_agrees(words: str):
    assert PROMTOOL is not None
    run = subprocess.run([PROMTOOL, *words.split()], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool could not be fetched by script/setup")
@pytest.mark.parametrize("settings", ["prometheus/prometheus.yml", "compose/prometheus.yml"])
def test_prometheus_reads_its_settings_with_the_rules_beside_them(settings: str, tmp_path: Path):
    """The files as the compose file mounts them: in one folder, with the key that the settings name."""
    assert PROMTOOL is not None
    key = tmp_path / "hawser.key"
    key.write_text("hawser_0123456789ab_secret")
    text = (DEPLOY / settings).read_text(encoding="utf-8")
    (tmp_path / "prometheus.yml").write_text(text.replace("/etc/prometheus/hawser.key", str(key)))
    shutil.copy(DEPLOY / "prometheus" / "rules.yml", tmp_path)
    words = [PROMTOOL, "check", "config", "prometheus.yml"]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 rule files found" in run.stdout
