"""Virtual time, and an asyncio event loop for each simulated process.

Nothing waits: the clock jumps to whatever is due next. All loops of a simulation share one
timeline, so that one process can be killed or frozen between any two steps of another.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from enum import Enum
from typing import Any

EPOCH = 1_800_000_000.0
"""What time.time() says when the timeline is at 0."""


class Entry:
    """One thing to run: of the world's when it has no loop, else of that process's."""

    __slots__ = ("args", "callback", "cancelled_", "context", "loop", "when_")

    def __init__(
        self,
        when: float,
        loop: ProcessLoop | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None = None,
    ) -> None:
        self.when_ = when
        self.loop = loop
        self.callback = callback
        self.args = args
        self.context = context
        self.cancelled_ = False

    def cancel(self) -> None:
        self.cancelled_ = True

    def cancelled(self) -> bool:
        return self.cancelled_

    def when(self) -> float:
        return self.when_


class Timeline:
    """What is due when, over all processes and the world."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self.stopped = False
        self._due: list[tuple[float, int, Entry]] = []
        self._ready: deque[Entry] = deque()
        self._count = 0

    def at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        loop: ProcessLoop | None = None,
        context: Context | None = None,
    ) -> Entry:
        entry = Entry(when, loop, callback, args, context)
        self._count += 1
        heapq.heappush(self._due, (when, self._count, entry))
        return entry

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> Entry:
        return self.at(self.now + seconds, callback, *args)

    def soon(self, entry: Entry) -> None:
        self._ready.append(entry)

    def taken(self, loop: ProcessLoop) -> list[Entry]:
        """What that process was about to run, taken off."""
        mine = [entry for entry in self._ready if entry.loop is loop]
        if mine:
            kept = [entry for entry in self._ready if entry.loop is not loop]
            self._ready.clear()
            self._ready.extend(kept)
        return mine

    def run(self, until: float) -> None:
        """Until that time, or until somebody sets ``stopped``."""
        ready, due = self._ready, self._due
        entered: ProcessLoop | None = None
        try:
            while True:
                while ready:
                    entry = ready.popleft()
                    if entry.cancelled_:
                        continue
                    self.steps += 1
                    loop = entry.loop
                    if loop is None:
                        entry.callback(*entry.args)
                    elif loop.state is State.RUNNING:
                        if loop is not entered:
                            events._set_running_loop(loop)
                            entered = loop
                        if entry.context is None:
                            entry.callback(*entry.args)
                        else:
                            entry.context.run(entry.callback, *entry.args)
                        if loop.fuse is not None:
                            loop.burn()
                    elif loop.state is State.FROZEN:
                        loop.held.append(entry)
                    if self.stopped:
                        return
                if not due or due[0][0] > until:
                    self.now = max(self.now, until)
                    return
                when, _, entry = heapq.heappop(due)
                if not entry.cancelled_:
                    if when > self.now:
                        self.now = when
                    ready.append(entry)
        finally:
            events._set_running_loop(None)


class State(Enum):
    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of one simulated process: tasks and timers, and neither sockets nor threads."""

    def __init__(self, timeline: Timeline) -> None:  # nothing of the real loop's is wanted
        self.timeline = timeline
        self.state = State.RUNNING
        self.held: list[Entry] = []  # while frozen
        self.errors: list[dict[str, Any]] = []
        self.fuse: tuple[int, Callable[[], None]] | None = None  # what happens after n steps
        self._tasks: list[asyncio.Task[Any]] = []

    # -- the process ------------------------------------------------------------------------

    def burn(self) -> None:
        """One step nearer to what is to befall the process."""
        assert self.fuse is not None
        steps, then = self.fuse
        self.fuse = (steps - 1, then) if steps else None
        if not steps:
            then()

    def enter(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call something in this process, now."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return function(*args)
        finally:
            events._set_running_loop(before)

    def freeze(self) -> None:
        self.state = State.FROZEN

    def thaw(self) -> None:
        self.state = State.RUNNING
        for entry in self.held:
            self.timeline.soon(entry)
        self.held = []

    def kill(self) -> None:
        """Nothing of it runs again. Its coroutines are unwound apart from the timeline, so that
        none is left half-run; whatever they call is to be dead too by then."""
        self.state = State.DEAD
        mine = deque(self.held)
        mine.extend(self.timeline.taken(self))
        self.held = []
        outside, self.timeline = self.timeline, _Apart(mine, self.timeline)
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for task in self._tasks:
                if not task.done():
                    task.cancel()
            while mine:
                entry = mine.popleft()
                if not entry.cancelled_:
                    entry.callback(*entry.args)
            for task in self._tasks:
                if task.done() and not task.cancelled():
                    task.exception()
        finally:
            events._set_running_loop(before)
            self.timeline = outside
            self._tasks = []

    # -- what asyncio asks of a loop ----------------------------------------------------------

    def time(self) -> float:
        return self.timeline.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Entry:
        entry = Entry(0.0, self, callback, args, context)
        self.timeline.soon(entry)
        return entry

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Entry:
        return self.timeline.at(when, callback, *args, loop=self, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Entry:
        return self.timeline.at(
            self.timeline.now + delay, callback, *args, loop=self, context=context
        )

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: object = None,  # noqa: ARG002
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name="simulated", context=context)
        self._tasks.append(task)
        return task

    def __del__(self) -> None: ...

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.state is not State.DEAD:
            self.errors.append(context)


class _Apart(Timeline):
    """A dying process's view: what is to run soon does, what is to run later never does."""

    def __init__(self, mine: deque[Entry], outside: Timeline) -> None:
        super().__init__()
        self.now = outside.now
        self._mine = mine

    def soon(self, entry: Entry) -> None:
        self._mine.append(entry)

    def at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        loop: ProcessLoop | None = None,
        context: Context | None = None,
    ) -> Entry:
        return Entry(when, loop, callback, args, context)
