"""/v1 for people."""

from __future__ import annotations

import pytest

from extender.domain.views import GangView, PodView, RankView, Step, moment
from tests.unit.api.fakes import Memory, api, call

T0 = 1_796_000_000.0


def gang(name: str = "train", **fields: object) -> GangView:
    start = moment(T0)
    assert start
    known: dict[str, object] = {
        "namespace": "vision",
        "name": name,
        "kind": "Job",
        "state": "running",
        "size": 2,
        "job_id": 41,
        "account": "ml",
        "reason": "Slurm gave it 2 nodes on one leaf",
        "estimated_start": start,
        "nodes": ("n1", "n2"),
        "ranks": (
            RankView(rank=0, pod="train-0", node="n1", switch_path="spine0/leaf3", phase="Running"),
            RankView(rank=1, pod="train-1"),
        ),
        "timeline": (Step(start, "submitted as Slurm job 41"),),
        **fields,
    }
    return GangView(**known)  # type: ignore[arg-type]


@pytest.fixture
def memory() -> Memory:
    memory = Memory()
    memory.views = [gang("b"), gang("a"), gang(namespace="audio")]
    memory.pods = [
        PodView(namespace="vision", name="train-0", why="Slurm job 41 put it on n1", state="placed")
    ]
    return memory


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["audio/train", "vision/a", "vision/b"]),
        ("?namespace=vision", ["vision/a", "vision/b"]),
        ("?namespace=nobody", []),
    ],
)
def test_list(memory: Memory, query: str, names: list[str]) -> None:
    found = call(api(memory), "GET", f"/v1/gangs{query}").json()["gangs"]
    assert [f"{g['namespace']}/{g['name']}" for g in found] == names
    assert all("ranks" not in g and "timeline" not in g for g in found)


def test_gang_as_json(memory: Memory) -> None:
    view = call(api(memory), "GET", "/v1/gangs/vision/a").json()
    assert view["estimated_start"] == "2026-11-30T00:53:20Z"
    assert view["nodes"] == ["n1", "n2"]
    assert view["ranks"][0] == {
        "rank": 0,
        "pod": "train-0",
        "node": "n1",
        "switch_path": "spine0/leaf3",
        "phase": "Running",
    }
    assert view["timeline"] == [{"at": "2026-11-30T00:53:20Z", "what": "submitted as Slurm job 41"}]


def test_pod_as_json(memory: Memory) -> None:
    view = call(api(memory), "GET", "/v1/pods/vision/train-0").json()
    assert view["why"] == "Slurm job 41 put it on n1"
    assert view["rank"] is None


def test_gang_as_text(memory: Memory) -> None:
    response = call(api(memory), "GET", "/v1/gangs/vision/a", accept="text/plain")
    assert response.headers["content-type"].startswith("text/plain")
    assert response.text == (
        "gang     vision/a (Job of 2, attempt 1)\n"
        "state    running\n"
        "reason   Slurm gave it 2 nodes on one leaf\n"
        "start    2026-11-30 00:53:20.000Z\n"
        "job      41\n"
        "account  ml\n"
        "\n"
        "RANK  POD      NODE  LEAF   SPINE   PHASE\n"
        "0     train-0  n1    leaf3  spine0  Running\n"
        "1     train-1  -     -      -       Pending\n"
        "\n"
        "2026-11-30 00:53:20.000Z  submitted as Slurm job 41\n"
    )


def test_list_and_pod_as_text(memory: Memory) -> None:
    lines = call(api(memory), "GET", "/v1/gangs", accept="text/plain").text.splitlines()
    assert lines[0].split() == ["NAMESPACE", "NAME", "KIND", "STATE", "JOB", "SIZE", "REASON"]
    assert len(lines) == 4
    pod = call(api(memory), "GET", "/v1/pods/vision/train-0", accept="text/plain").text
    assert pod == "pod    vision/train-0\nwhy    Slurm job 41 put it on n1\nstate  placed\n"
    assert call(api(Memory()), "GET", "/v1/gangs", accept="text/plain").text == "no gangs\n"


@pytest.mark.parametrize("query", ["?pretty", "?pretty=true", "?pretty=1"])
def test_pretty(memory: Memory, query: str) -> None:
    text = call(api(memory), "GET", f"/v1/gangs/vision/a{query}").text
    assert text.startswith('{\n  "namespace": "vision",\n')


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        (
            "/v1/gangs/vision/nix",
            404,
            "Sluice knows no gang vision/nix; GET /v1/gangs?namespace=vision lists the gangs",
        ),
        (
            "/v1/pods/vi%20sion/nix",
            404,
            "Sluice knows no pod vi sion/nix; GET /v1/gangs?namespace=vi%20sion lists the gangs",
        ),
        ("/v1/gang", 404, "there is no /v1/gang here; did you mean /v1/gangs?"),
        ("/v1/gangs/", 404, "there is no /v1/gangs/ here; did you mean /v1/gangs?"),
        (
            "/v1/gangs?namespce=x",
            400,
            "unknown parameter 'namespce'; see /v1/openapi.json for those that exist",
        ),
        (
            "/v1/gangs?pretty=perhaps",
            400,
            "parameter 'pretty': 'perhaps' is not allowed: "
            "Input should be a valid boolean, unable to interpret input",
        ),
    ],
)
def test_errors(memory: Memory, path: str, status: int, error: str) -> None:
    response = call(api(memory), "GET", path)
    assert (response.status_code, response.json()) == (status, {"error": error})


def test_other_methods(memory: Memory) -> None:
    response = call(api(memory), "POST", "/v1/gangs", b"{}")
    assert response.status_code == 405
    assert response.json() == {"error": "POST /v1/gangs: only GET works here"}


def test_every_path_is_listed_to_the_lost() -> None:
    error = call(api(Memory()), "GET", "/").json()["error"]
    for path in ("/extender/filter", "/readyz", "/v1/gangs", "/v1/pods/{namespace}/{name}"):
        assert path in error


def test_openapi_documents_only_v1_and_every_reference_exists() -> None:
    response = call(api(Memory()), "GET", "/v1/openapi.json")
    document = response.json()
    assert sorted(document["paths"]) == [
        "/v1/gangs",
        "/v1/gangs/{namespace}/{name}",
        "/v1/pods/{namespace}/{name}",
    ]
    used = {part.split('"')[0] for part in response.text.split("#/components/schemas/")[1:]}
    assert used == set(document["components"]["schemas"])
