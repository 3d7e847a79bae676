"""Tokens from files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from extender.slurm.port import SlurmDenied
from extender.slurm.tokens import FixedToken, TokenFile


@pytest.mark.parametrize(
    "text", ["ey.a.b", "ey.a.b\n", "\n  ey.a.b \r\n", "SLURM_JWT=ey.a.b\n", "ey.a.b\n# more\n"]
)
def test_what_a_file_may_look_like(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    assert TokenFile(tmp_path / "token").token() == "ey.a.b"


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    source = TokenFile(path)
    assert source.token() == "one"
    path.write_text("three")
    assert source.token() == "three"


def test_a_secret_that_is_swapped_by_symlink_is_seen(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
        os.utime(tmp_path / name / "token", (1, 1))  # same size, same time
    link = tmp_path / "data"
    link.symlink_to("one")
    source = TokenFile(link / "token")
    assert source.token() == "one"
    link.unlink()
    link.symlink_to("two")
    assert source.token() == "two"


def test_a_file_that_looks_unchanged_is_read_after_a_denial(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    os.utime(path, (1, 1))
    source = TokenFile(path)
    assert source.token() == "one"
    path.write_text("two")
    os.utime(path, (1, 1))
    assert source.token() == "one"
    source.renew()
    assert source.token() == "two"


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read: No such file"), (b"", "is empty"), (b" \n", "is empty"),
     (b"\xff\xfesecret", "holds no text")],
)  # fmt: skip
def test_a_file_without_a_token_is_a_denial(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SlurmDenied, match=says) as denied:
        TokenFile(path).token()
    assert "secret" not in str(denied.value)
    assert denied.value.__cause__ is None or "secret" not in repr(denied.value.__cause__)


def test_a_token_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("ey.secret")
    source = TokenFile(tmp_path / "token")
    source.token()
    assert "ey.secret" not in f"{source!r} {source} {FixedToken('ey.secret')!r}"
