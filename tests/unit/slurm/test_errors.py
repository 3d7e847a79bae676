"""Sentences for people out of Slurm's error numbers."""

from __future__ import annotations

from typing import Any

import pytest

from extender.slurm import errors
from extender.slurm.port import SlurmRefused
from extender.slurm.wire import Problem
from tests.unit.slurm.contract import request

# Every number that has a sentence, with what its sentence must name.
NAMED: list[tuple[int, dict[str, Any], str]] = [
    (2000, {"partition": "p1"}, "'p1'"),
    (2001, {"partition": ""}, "default partition"),
    (2002, {"partition": "p1"}, "'p1'"),
    (2003, {"partition": "p1"}, "'alice'"),
    (2007, {}, "MaxJobCount"),
    (2012, {}, "1,024"),
    (2014, {"gpus": 9}, "9 GPUs"),
    (2014, {"gpus": 2, "gpu_type": "h200"}, "2 h200 GPUs"),
    (2014, {"constraint": "rack7"}, "'rack7'"),
    (2018, {}, "excluded"),
    (2029, {"constraint": "c1"}, "'c1'"),
    (2038, {"dependency": "d1"}, "'d1'"),
    (2071, {"dependency": "d1"}, "'d1'"),
    (2045, {"account": "visoin"}, "'visoin'"),
    (2045, {"account": ""}, "Slurm's default"),
    (2048, {"licenses": "l:1"}, "'l:1'"),
    (2050, {"qos": "q1"}, "'q1'"),
    (2051, {"time_limit_minutes": 77}, "77 minutes"),
    (2052, {"reservation": "r1"}, "'r1'"),
    (2053, {"reservation": "r1"}, "'r1'"),
    (2057, {"wckey": "w1"}, "'w1'"),
    (2066, {"qos": "q1"}, "'q1'"),
    (2070, {"partition": "p1"}, "'p1'"),
    (2101, {"partition": "p1"}, "'p1'"),
    (2072, {"gpus": 1, "gpu_type": "h200"}, "gres/gpu:h200"),
    (2105, {}, "no new jobs"),
    (2123, {"nice": -7}, "-7"),
    (2164, {}, "'alice'"),
    (2166, {}, "'alice'"),
    (9202, {"begin": "b1"}, "'b1'"),
]


@pytest.mark.parametrize(("code", "asked", "named"), NAMED)
def test_a_sentence_names_the_thing(code: int, asked: dict[str, Any], named: str) -> None:
    problem = Problem(code, "Slurm's words", "Batch job submission failed")
    error = errors.submit_failure([problem], 422, request(**asked))
    assert isinstance(error, SlurmRefused)
    assert named in str(error)
    assert error.code == code


def test_a_number_without_a_sentence_keeps_slurms_words() -> None:
    problem = Problem(2099, "Invalid mcs_label specified", "Batch job submission failed")
    error = errors.submit_failure([problem], 422, request())
    assert str(error) == (
        "Slurm refused to submit the job: Batch job submission failed: Invalid mcs_label specified"
        " (2099)"
    )


def test_a_begin_that_was_not_asked_for_is_not_blamed() -> None:
    problem = Problem(9202, "Unable to convert Data type", "Unable to parse x")
    assert "begin" not in str(errors.submit_failure([problem], 500, request()))


def test_words_that_say_the_same_are_said_once() -> None:
    assert str(errors.failure([Problem(2100, "same", "same")], 422, "x")).count("same") == 1
    assert "no reason given" in str(errors.failure([Problem(2100, None, "")], 422, "x"))
