"""What kube-scheduler's own client code makes of our answers, in both node forms.

The client is built from k8s.io/kubernetes (extender_client/main.go), with the modules of the test
control plane.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.api.scheduler import ELSEWHERE, NOT_OFFERED
from extender.domain.views import WAITING, Verdict, VerdictKind
from tests.component.serving import Service
from tests.harness import cache, gobuild
from tests.harness.command import run
from tests.harness.progress import Step

pytestmark = pytest.mark.e2e

SOURCE = Path(__file__).parent / "extender_client" / "main.go"
EVERY = ["n1", "n2", "n3"]


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Path:
    """The program; a minute to build, once for each version of Kubernetes."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # progress must be seen while it happens
        return build_client()


def build_client() -> Path:
    module = gobuild.GO_DIR / "k8s"

    def build(directory: Path, running: Step) -> None:
        go, env = gobuild._go()

        def note(line: str) -> None:
            running.note = line[:60]

        target = directory / "extender_client"
        run(
            [go, "build", "-v", "-ldflags", "-s -w", "-o", str(target), str(SOURCE)],
            what="building kube-scheduler's extender client", on_line=note, env=env, cwd=module,
            log=cache.root() / "logs" / "build-extender-client.log",
            hint="Check that the Go module proxy answers (go env GOPROXY).",
        )  # fmt: skip

    digest = cache.key(module / "go.mod", module / "go.sum", SOURCE)
    return cache.artefact("bin", "extender_client", digest, build) / "extender_client"


def ask(client: Path, url_prefix: str, node_cache_capable: bool, *pods: str) -> list[Any]:
    told = subprocess.run(
        [client, url_prefix, str(node_cache_capable).lower()],
        input="\n".join(pods), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in told.stdout.splitlines()]


@pytest.mark.parametrize("node_cache_capable", [True, False], ids=["names", "objects"])
def test_each_verdict(client: Path, node_cache_capable: bool) -> None:
    with Service() as service:
        memory = service.memory
        memory.verdicts["placed"] = Verdict(VerdictKind.NODE, "n2")
        memory.verdicts["gone"] = Verdict(VerdictKind.NODE, "n9")
        memory.verdicts["waiting"] = Verdict(VerdictKind.WAIT, message=WAITING)
        pods = ("foreign", "placed", "gone", "waiting")
        foreign, placed, gone, waiting = ask(client, service.url_prefix, node_cache_capable, *pods)

    for seen in (foreign, placed, gone, waiting):
        assert [seen[key] for key in seen if key.endswith("Error")] == ["", "", "", ""]
        assert seen["Failed"] == {}

    assert foreign["Kept"] == EVERY
    assert foreign["Unresolvable"] == {}
    assert foreign["Scores"] == {"n1": 0, "n2": 0, "n3": 0}
    assert foreign["Victims"] == {name: [f"victim-{name}"] for name in EVERY}

    assert placed["Kept"] == ["n2"]
    assert placed["Unresolvable"] == {"n1": ELSEWHERE, "n3": ELSEWHERE}
    assert placed["Scores"] == {"n1": 0, "n2": 10, "n3": 0}

    assert gone["Kept"] == waiting["Kept"] == []
    assert gone["Unresolvable"] == dict.fromkeys(EVERY, NOT_OFFERED)
    assert waiting["Unresolvable"] == dict.fromkeys(EVERY, WAITING)
    assert placed["Victims"] == gone["Victims"] == waiting["Victims"] == {}

    binds = [asked for asked in memory.asked if asked[0] == "bind"]
    assert binds == [("bind", "vision", name, f"uid-{name}", "n2") for name in pods]


def test_why_not_reaches_kube_scheduler(client: Path) -> None:
    with Service() as service, capture_logs() as logs:
        service.memory.why_not_bound = "Slurm placed it on n1"
        (refused,) = ask(client, service.url_prefix, True, "a")
        service.memory.crash = ZeroDivisionError()
        (crashed,) = ask(client, service.url_prefix, True, "a")
    assert refused["BindError"] == "Slurm placed it on n1"
    assert crashed["BindError"] == "Sluice failed to answer; its log has the cause"
    assert crashed["FilterError"] == "Sluice failed to answer; its log has the cause"
    assert crashed["Victims"] == {}
    failed = [line["verb"] for line in logs if line["event"] == "verb failed"]
    assert failed == ["filter", "prioritize", "bind", "preempt"]
