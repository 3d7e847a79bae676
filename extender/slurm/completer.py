"""The child process that ends jobs with an exit code: complete.py, wherever it runs.

Started when it is first needed and again after it failed. What it answers proves nothing: whoever
asked looks at the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

_REST_SECONDS = 30.0
"""How long it is left alone when it hangs. Jobs that end meanwhile are cancelled: each would wait
as long behind the others, and gangs that start behind them."""


def wait_status(exit_code: int) -> int:
    """As wait(2) would give it for a process that ended with this code."""
    return min(max(exit_code, 0), 255) << 8


class Completer:
    """``command`` is complete.py without arguments, perhaps behind "docker exec -i" or "ssh".

    ``may_write`` is asked right before a job is named to it.
    """

    def __init__(
        self,
        command: Sequence[str],
        timeout_seconds: float = 10.0,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._command = command
        self._timeout = timeout_seconds
        self._may_write = may_write
        self._rests_until = 0.0  # monotonic
        self._child: asyncio.subprocess.Process | None = None
        self._one_at_a_time = asyncio.Lock()

    async def complete(self, job_id: int, status: int) -> str:
        """Have the job ended; "" when the child says it is, else why not. Never raises."""
        async with self._one_at_a_time:
            if not self._may_write():
                return "another replica leads"
            if time.monotonic() < self._rests_until:
                return "it did not answer lately"
            try:
                async with asyncio.timeout(self._timeout):
                    said = await self._ask(f"{job_id} {status}\n")
            except TimeoutError:
                said = f"no answer in {self._timeout:g} s"
                self._rests_until = time.monotonic() + _REST_SECONDS
            except (OSError, ValueError) as error:
                said = f"{self._command[0]}: {error}"
            except BaseException:
                await self.close()  # its answer would be taken for the next job's
                raise
            if said == f"{job_id} ok":
                return ""
            if not said.startswith(f"{job_id} "):
                await self.close()
            return said.removeprefix(f"{job_id} ")

    async def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def _ask(self, line: str) -> str:
        if self._child is None:
            self._child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for us, not for it
            )
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(ConnectionError):  # it has ended: then there is no answer
            child.stdin.write(line.encode())
            await child.stdin.drain()
        answer = await child.stdout.readline()
        return answer.decode("utf-8", "replace").strip() or "it ended without an answer"
