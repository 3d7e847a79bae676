"""Settings: the documented file, the environment over it, and errors that say what to write."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.settings import Settings, SettingsError, load
from extender.settings_text import default, keys, reference

SHIPPED = Path(__file__).parents[2] / "config" / "sluice.yaml"
KEYS = {".".join(path): field for path, field in keys(Settings)}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("SLUICE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sluice.yaml"


def problems(file: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(file)
    first, *lines = str(caught.value).splitlines()
    assert first.startswith(f"{file}: ")
    assert all(line.startswith("  ") for line in lines)
    return [line.strip() for line in lines]


def commented(text: str) -> Iterator[tuple[str, str, Any]]:
    """(key, the comment above it on one line, its value) for each setting of the file."""
    comment: list[str] = []
    group = ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("#"):
            comment.append(bare.removeprefix("#").strip())
            continue
        if bare:
            name, _, value = bare.partition(":")
            key = f"{group}.{name}" if line.startswith(" ") else name
            if value:
                yield key, " ".join(comment), yaml.safe_load(value)
            else:
                group = name
        comment = []


SHIPPED_ENTRIES = list(commented(SHIPPED.read_text()))


class TestTheShippedFile:
    def test_is_what_the_code_writes(self) -> None:
        assert SHIPPED.read_text() == reference(Settings), (
            "run: python -m extender.settings > config/sluice.yaml"
        )

    def test_changes_nothing(self) -> None:
        assert load(SHIPPED) == Settings()

    def test_lists_every_setting_once_in_order(self) -> None:
        assert [key for key, _, _ in SHIPPED_ENTRIES] == list(KEYS)

    @pytest.mark.parametrize(("key", "comment", "value"), SHIPPED_ENTRIES)
    def test_the_comment_tells_the_default(self, key: str, comment: str, value: Any) -> None:
        told = re.search(r" Default: (.*)\.$", comment)
        assert told
        assert yaml.safe_load(told[1]) == value == yaml.safe_load(default(KEYS[key]))

    @pytest.mark.parametrize(("key", "comment", "value"), SHIPPED_ENTRIES)
    def test_the_comment_tells_what_is_allowed(
        self, key: str, comment: str, value: Any, file: Path
    ) -> None:
        told = re.search(r" Allowed: (.*)\. Default: ", comment)
        assert told
        good, bad = claims(told[1])
        for entry in [value, *good]:
            write(file, key, entry)
            assert lookup(load(file), key) == entry
        for entry in bad:
            write(file, key, entry)
            assert f"it may be {told[1]}, default " in problems(file)[0]


def claims(allowed: str) -> tuple[list[Any], list[Any]]:
    """Values that the words allow, and values that they forbid."""
    if found := re.fullmatch(r"a whole number from (\d+) to (\d+)", allowed):
        low, high = map(int, found.groups())
        return [low, high], [low - 1, high + 1, low + 0.5, "x", True]
    if found := re.fullmatch(r"a number from ([\d.]+) to (\d+)", allowed):
        return [float(found[1]), 10, 0.5, int(found[2])], [0, int(found[2]) + 1, "x", True]
    if allowed == "true or false":
        return [True, False], ["perhaps", 7]
    if found := re.fullmatch(r"([a-z, ]+) or ([a-z]+)", allowed):
        choices = [*found[1].split(", "), found[2]]
        return choices, ["nix", "", True, choices[0].upper()]
    return TEXTS[allowed]


TEXTS: dict[str, tuple[list[Any], list[Any]]] = {
    "text": (["", "anything goes"], [7, ["a"], {"a": 1}]),
    "text, not empty": (
        ["127.0.0.1", "slurm", "/var/run/secrets/sluice/slurm-token"],
        ["", 7, None, []],
    ),
    "up to 63 small letters, digits, '-' and '.', a letter or digit first and last": (
        ["kubernetes", "sluice", "a", "7", "a.b-c", "a" * 63],
        ["", "A", "-a", "a-", "a_b", "a b", "a" * 64, "a\n", 7],
    ),
    "letters, digits, '_', '.' and '-'": (["k8s", "root", "A_1.-"], ["", "a b", "a:b", "a\n"]),
    "http:// or https:// with host, port and maybe a path": (
        ["http://127.0.0.1:6820", "https://slurm/api", "http://[::1]:1"],
        ["", "slurm:6820", "ftp://a", "http://", "http://a b", "http://a?b", 7],
    ),
    "minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s, UNLIMITED or empty; not zero": (
        ["", "90", "1:30", "12:00:00", "1-12", "1-12:30", "1-0:0:1", "UNLIMITED"],
        ["0", "0:00", "1h", "-1", "1-", "x", 90],
    ),
    "a list of texts, or one line as a shell splits it": (
        [[], ["/opt/complete", "--now"]],
        [7, [7], [""], "'", {"a": "b"}],
    ),
}


def write(file: Path, key: str, value: Any) -> None:
    group, _, name = key.rpartition(".")
    document: dict[str, Any] = {group: {name: value}} if group else {name: value}
    if key == "slurm.poll_min_milliseconds":  # may not pass the other
        document["slurm"]["poll_max_milliseconds"] = 60_000
    if key == "slurm.poll_max_milliseconds":
        document["slurm"]["poll_min_milliseconds"] = 10
    file.write_text(yaml.safe_dump(document))


def lookup(settings: Settings, key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


class TestEnvironment:
    def test_goes_over_the_file(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file.write_text("http: {port: 1, host: '::1'}\ncluster: a\n")
        monkeypatch.setenv("SLUICE_HTTP__PORT", "8088")
        monkeypatch.setenv("sluice_cluster", "b")
        monkeypatch.setenv("SLUICE_NODES__MANAGE", "false")
        settings = load(file)
        assert (settings.http.port, settings.http.host) == (8088, "::1")
        assert settings.cluster == "b"
        assert not settings.nodes.manage

    def test_reaches_every_setting(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file.write_text("")
        for key, field in KEYS.items():
            value = yaml.safe_load(default(field))
            text = "" if value == [] else str(value)
            monkeypatch.setenv("SLUICE_" + key.upper().replace(".", "__"), text)
        assert load(file) == Settings()

    def test_splits_a_command_as_a_shell_does(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.write_text("")
        monkeypatch.setenv("SLUICE_SLURM__COMPLETE_COMMAND", "/opt/complete --conf '/etc/a b'")
        assert load(file).slurm.complete_command == ["/opt/complete", "--conf", "/etc/a b"]

    def test_variables_of_kubernetes_and_others_are_left_alone(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A Service named sluice puts these into every pod beside it."""
        file.write_text("")
        monkeypatch.setenv("SLUICE_PORT", "tcp://10.96.0.7:8077")
        monkeypatch.setenv("SLUICE_PORT_8077_TCP_ADDR", "10.96.0.7")
        monkeypatch.setenv("SLUICE_SERVICE_HOST", "10.96.0.7")
        monkeypatch.setenv("SLUICE_CACHE", "/var/cache")
        assert load(file) == Settings()

    @pytest.mark.parametrize(
        ("variable", "value", "problem"),
        [
            (
                "SLUICE_HTTP__PORT",
                "http",
                'http.port (from SLUICE_HTTP__PORT): "http" is not allowed; '
                "it may be a whole number from 1 to 65535, default 8077",
            ),
            (
                "SLUICE_HTTP__PROT",
                "1",
                "http.prot (from SLUICE_HTTP__PROT): unknown; did you mean http.port?",
            ),
            ("SLUICE_HTPP__PORT", "1", "SLUICE_HTPP__PORT: unknown; did you mean http.port?"),
            (
                "SLUICE_XYZ__QQQ",
                "1",
                "SLUICE_XYZ__QQQ: unknown; there are cluster, log, http, kubernetes, slurm, "
                "nodes, gangs, lease",
            ),
            (
                "SLUICE_HTTP",
                "8088",
                "http (from SLUICE_HTTP): a group of settings is wanted here: http.host, "
                "http.port, http.body_limit_mib",
            ),
            (
                "SLUICE_HTTP__PORT__X",
                "1",
                'http.port (from SLUICE_HTTP__PORT__X): {"x": "1"} is not allowed; '
                "it may be a whole number from 1 to 65535, default 8077",
            ),
        ],
    )
    def test_wrong_variables_are_named(
        self,
        file: Path,
        monkeypatch: pytest.MonkeyPatch,
        variable: str,
        value: str,
        problem: str,
    ) -> None:
        file.write_text("")
        monkeypatch.setenv(variable, value)
        assert problems(file) == [problem]


class TestProblems:
    def test_all_are_told_at_once(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLUICE_LOG__LEVEL", "loud")
        file.write_text(
            "clustr: x\nhttp: {prot: 1, port: yes}\nslurm: {complete_command: [a, 5]}\nnodes: 5\n"
        )
        assert problems(file) == [
            'log.level (from SLUICE_LOG__LEVEL): "loud" is not allowed; '
            'it may be debug, info, warning or error, default "info"',
            "http.port: true is not allowed; it may be a whole number from 1 to 65535, "
            "default 8077",
            "http.prot: unknown; did you mean http.port?",
            "slurm.complete_command: 5 is not allowed; it may be a list of texts, or one line "
            "as a shell splits it, default []",
            "nodes: a group of settings is wanted here: nodes.manage, nodes.taint, "
            "nodes.feature, nodes.topology_root, nodes.sockets_per_node, nodes.resync_seconds",
            "clustr: unknown; did you mean cluster?",
        ]

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("http: {port: 1", "the file is not YAML: "),
            ("a: b: c", "the file is not YAML: "),
            ("- http", "the file holds no groups of settings"),
            ("just words", "the file holds no groups of settings"),
            ("http: {port: 1}\nhttp: {}", "http: given twice, the second time in line 2"),
            ("http:\n  port: 1\n  port: 2", "port: given twice, the second time in line 3"),
            ("[" * 990, "the file is not YAML: "),
            ("a: !!python/object:os.system x", "the file is not YAML: "),
            ("? [a, b]\n: c", "line 1: a key is a word, not a list or a mapping"),
            ("http:\n  ? {a: b}\n  : c", "line 2: a key is a word, not a list or a mapping"),
            ("1: 2", "1: unknown; there are cluster, log, http"),
            ("http: {1: 2}", "http.1: unknown; did you mean http.port?"),
            ("cluster: 2026-13-45", "the file is not YAML: month must be in 1..12"),
            ("http: {port: 2026-12-01}", 'http.port: "2026-12-01" is not allowed'),
            ("http: {port: .nan}", "http.port: NaN is not allowed"),
            ("gangs: {event_interval_seconds: .nan}", "gangs.event_interval_seconds: NaN is not"),
            ("gangs: {event_interval_seconds: .inf}", "gangs.event_interval_seconds: Infinity is"),
            ("cluster: &a [*a]", "cluster: a list is not allowed"),
            ("http: {host: [[" + "x" * 200 + "]]}", 'http.host: [["xxxxxxxxxx'),
            ("http: [1]", "http: a group of settings is wanted here: http.host"),
            ("cluster: ", "cluster: {} is not allowed; it may be up to 63 small letters"),
        ],
    )
    def test_of_the_file(self, file: Path, text: str, problem: str) -> None:
        file.write_text(text)
        (only,) = problems(file)
        assert only.startswith(problem)

    def test_not_utf8(self, file: Path) -> None:
        file.write_bytes(b"cluster: \xff")
        assert problems(file) == ["the file is not UTF-8: invalid start byte at byte 9"]

    def test_not_there(self, file: Path) -> None:
        assert problems(file) == ["the file cannot be read: No such file or directory"]

    def test_a_directory(self, file: Path) -> None:
        file.mkdir()
        assert problems(file) == ["the file cannot be read: Is a directory"]

    @pytest.mark.parametrize("user", ["root", "slurm", "slurmadm"])
    def test_gangs_do_not_run_as_an_operator(self, file: Path, user: str) -> None:
        file.write_text(f"slurm: {{default_user: {user}, user_name: slurmadm}}")
        assert problems(file) == [
            f"slurm.default_user: {user!r} would run every gang as an operator of Slurm; name an "
            "ordinary user, or leave it empty"
        ]

    def test_the_polls_are_in_order(self, file: Path) -> None:
        file.write_text("slurm: {poll_min_milliseconds: 500, poll_max_milliseconds: 499}")
        assert problems(file) == [
            "slurm.poll_max_milliseconds: 499 is below slurm.poll_min_milliseconds, which is 500"
        ]


@pytest.mark.parametrize("text", ["", "# nothing", "http:\n", "{}", "---\n"])
def test_what_is_left_out_has_its_default(file: Path, text: str) -> None:
    file.write_text(text)
    assert load(file) == Settings()


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().http.port = 1  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        Settings().cluster = "x"  # type: ignore[misc]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(
    st.sampled_from([*Settings.model_fields, "x"]),
    VALUES | st.dictionaries(st.sampled_from([key.split(".")[-1] for key in KEYS]), VALUES),
    max_size=4,
)


@given(st.one_of(DOCUMENTS.map(yaml.safe_dump), st.text(max_size=60)))
@hypothesis.settings(max_examples=100, deadline=None)
def test_whatever_the_file_holds_the_answer_is_settings_or_sentences(content: str) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "sluice.yaml"
        path.write_text(content, encoding="utf-8", errors="surrogatepass")
        with suppress(SettingsError):
            load(path)
