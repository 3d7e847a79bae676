"""What the service under test gets in place of the clock, of chance and of the garbage collector.

``installed()`` puts them into every loaded module of ``extender`` and takes them out again.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import random
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import structlog

from extender.control import metrics
from tests.simulation.clock import EPOCH, Timeline


class Clock:
    """The module ``time`` of a simulation."""

    def __init__(self) -> None:
        self.timeline = Timeline()

    def time(self) -> float:
        return EPOCH + self.timeline.now

    def monotonic(self) -> float:
        return 1000.0 + self.timeline.now

    perf_counter = monotonic


class Chance(random.Random):
    """The module ``random`` of a simulation."""


class NoCollector:
    """The module ``gc``: a simulation makes thousands of services in one process."""

    def collect(self) -> int:
        return 0

    def freeze(self) -> None: ...


clock = Clock()
defects: list[str] = []
"""Exceptions that the service caught and logged as none of its own: no schedule may cause one."""


def _keep_defects(_logger: Any, _name: str, event: Any) -> Any:
    if event.get("exc_info"):
        defects.append("".join(traceback.format_exception(sys.exception())))
    raise structlog.DropEvent


class NoMetric:
    """Any metric: counting costs a tenth of a schedule and nothing looks at it."""

    def __call__(self, *_: object, **__: object) -> NoMetric:
        return self

    def __getattr__(self, name: str) -> NoMetric:
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class NoMetrics:
    """The module ``metrics``."""

    def __getattr__(self, name: str) -> NoMetric:
        return _no_metric


_no_metric = NoMetric()
chance = Chance(0)
_REPLACED: dict[int, Any] = {
    id(time): clock,
    id(random): chance,
    id(gc): NoCollector(),
    id(metrics): NoMetrics(),
}


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """The service's modules see the simulation's time and chance, and log nothing."""
    structlog.configure(
        processors=[_keep_defects],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        cache_logger_on_first_use=True,
    )
    # A process that is killed leaves coroutines that had not begun to run.
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
    undo: list[tuple[ModuleType, str, object]] = []
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] != "extender":
            continue
        for key, value in list(vars(module).items()):
            stand_in = _REPLACED.get(id(value))
            if stand_in is not None:
                undo.append((module, key, value))
                setattr(module, key, stand_in)
    try:
        yield
    finally:
        for module, key, value in undo:
            setattr(module, key, value)
