"""Quantities and times: exact, and never rounded down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.domain.quantity import mib_up, milli, time_limit_minutes, whole


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1", 1000),
        ("500m", 500),
        ("0.1", 100),
        ("1.5", 1500),
        ("100u", 1),
        ("1n", 1),
        ("2e3", 2_000_000),
    ],
)
def test_cpu(text: str, thousandths: int) -> None:
    assert milli(text) == thousandths


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512Ki", 524288),
        ("1Mi", 1048576),
        ("1M", 1000000),
        ("1.5Gi", 1610612736),
        ("1E", 10**18),
        ("128e6", 128000000),
        ("1500m", 2),
        (".5Ki", 512),
    ],
)
def test_memory(text: str, size: int) -> None:
    assert whole(text) == size


@pytest.mark.parametrize("text", ["", "abc", "1 Gi", "1GiB", "0x10", "١", "1\n"])
def test_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        whole(text)


@pytest.mark.parametrize(("size", "mib"), [(0, 1), (1, 1), (524288, 1), (1048576, 1), (1048577, 2)])
def test_memory_is_never_zero_and_never_rounded_down(size: int, mib: int) -> None:
    assert mib_up(size) == mib


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("90:30", 91),
        ("1:30:00", 90),
        ("0:00:01", 1),
        ("2-12", 3600),
        ("2-12:30", 3630),
        ("2-12:30:01", 3631),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_time_limit(text: str, minutes: int | None) -> None:
    assert time_limit_minutes(text) == minutes


@pytest.mark.parametrize("text", ["", "2h", "1:2:3:4", "-5", "1-", "ten", "1.5"])
def test_malformed_time_limit_says_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match="write minutes"):
        time_limit_minutes(text)


@pytest.mark.parametrize("text", ["0", "0:00", "0-0"])
def test_zero_is_not_unlimited(text: str) -> None:
    with pytest.raises(ValueError, match="is zero"):
        time_limit_minutes(text)


@given(st.integers(1, 365), st.integers(0, 23), st.integers(0, 59))
def test_days_hours_minutes_add_up(days: int, hours: int, minutes: int) -> None:
    assert time_limit_minutes(f"{days}-{hours}:{minutes}") == (days * 24 + hours) * 60 + minutes
