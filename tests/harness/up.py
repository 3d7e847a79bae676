"""`make up` and `make down`: one stack that keeps running in the background.

`python -m tests.harness.up start|stop|serve`. ``serve`` is the process that owns the stack; it
leaves ``up.json`` beside its log for as long as the stack answers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.harness import cache, engine, process
from tests.harness.errors import HarnessError, tail
from tests.harness.fabric import Fabric
from tests.harness.process import Identity
from tests.harness.progress import say, step
from tests.harness.runs import runs_directory
from tests.harness.stack import Stack

ROOT = Path(__file__).parents[2]
START_SECONDS = 180.0
STOP_SECONDS = 60.0
BOOTSTRAP = "python3 -m tests.harness.bootstrap"


def state_file() -> Path:
    """Where a running ``serve`` says who and where it is."""
    return runs_directory().parent / "up.json"


def log_file() -> Path:
    return state_file().with_suffix(".log")


def running() -> dict[str, Any] | None:
    """What ``serve`` has written, when it still lives; ``text`` is "" until the stack is up."""
    try:
        state: dict[str, Any] = json.loads(state_file().read_text())
        owner = Identity(*state["owner"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return state if owner.alive else None


def start() -> None:
    """Start the stack unless it is up, and print how to use it. Raises HarnessError."""
    state_file().parent.mkdir(parents=True, exist_ok=True)
    with cache.lock("up", "it starts the stack"):
        state = running()
        if state is not None and state["text"]:
            print("The stack is up already.")
        else:
            state = _start()
    print(state["text"])


def _start() -> dict[str, Any]:
    with open(log_file(), "w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.up", "serve"], cwd=ROOT, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    deadline = time.monotonic() + START_SECONDS
    try:
        with step("starting the stack"):
            while server.poll() is None and time.monotonic() < deadline:
                state = running()
                if state is not None and state["text"]:
                    return state
                time.sleep(0.1)
    except BaseException:
        _end(process.identity(server.pid))
        raise
    if server.poll() is None:
        _end(process.identity(server.pid))
    raise HarnessError(f"the stack did not come up: its log says why. {tail(log_file())}")


def stop() -> None:
    """End the stack; returns when nothing of it is left."""
    state = running()
    if state is None:
        print("The stack is not up.")
        return
    with step("stopping the stack"):
        _end(Identity(*state["owner"]))
        engine.settle()
    print("The stack is down.")


def _end(owner: Identity) -> None:
    """SIGTERM, and SIGKILL when that does not help: the run's reaper cleans up then."""
    process.end(lambda: [owner], STOP_SECONDS)


def serve() -> None:
    """Own the stack until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _write_state("")
    try:
        with Stack.start(Fabric(), keep_logs=False) as stack:
            problem = ""
            try:
                stack.sluice.start({"slurm": {"default_account": "ml", "default_user": "alice"}})
            except HarnessError as error:
                problem = str(error).splitlines()[0]
            _write_state(describe(stack, problem))
            while True:
                signal.pause()
    finally:
        state_file().unlink(missing_ok=True)


def _write_state(text: str) -> None:
    owner = process.identity(os.getpid())
    scratch = state_file().with_suffix(".tmp")
    scratch.write_text(json.dumps({"owner": [owner.pid, owner.started_ticks], "text": text}))
    scratch.rename(state_file())


def describe(stack: Stack, problem: str) -> str:
    """How to use the running stack, for a person."""
    slurm = stack.slurm
    docker = f"docker -H {stack.engine_host} exec -it {slurm.container.id[:12]}"
    sluice = f"{stack.sluice.base_url}  (log: {stack.sluice.log})"
    config = stack.directory / "sluice.yaml"
    if problem:
        sluice = f"not running: {problem}"
    return f"""
  Kubernetes   export KUBECONFIG={stack.kubeconfig("admin")}
               {stack.admin.server}  {stack.fabric.size} nodes of {stack.fabric.gpus_per_node} GPUs
  Slurm        {slurm.rest_url}  (slurmrestd; token: {slurm.token_file})
               {docker} squeue
  Sluice       {sluice}
  logs         {stack.directory}/logs

  sluice doctor:
    {BOOTSTRAP} python -m extender doctor --config {config}
  Sluice again, after you have killed it:
    {BOOTSTRAP} python -m extender serve --config {config}
  slurmctld again:
    {docker.replace(" -it", " -d")} /opt/sluice/daemon.sh slurmctld

  A namespace that Slurm decides for:
    kubectl create namespace ml
    kubectl label namespace ml sluice.dev/managed=true
    kubectl annotate namespace ml sluice.dev/user=alice sluice.dev/account=ml
    kubectl apply -n ml -f deploy/examples/train.yaml
    curl -H 'Accept: text/plain' {stack.sluice.base_url}/v1/gangs/ml/train
  No container runs: a Job's pods end after 3 s, or when the annotation
  pod-complete.stage.kwok.x-k8s.io/delay on the pod template says ("1h").

  make down ends it.
"""


def main(argv: list[str]) -> int:
    """Run one of the commands. Exit code 2 for an unknown one."""
    commands = {"start": start, "stop": stop, "serve": serve}
    if len(argv) != 1 or argv[0] not in commands:
        print(f"usage: python -m tests.harness.up {'|'.join(commands)}", file=sys.stderr)
        return 2
    commands[argv[0]]()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except HarnessError as problem:
        say(f"error: {problem}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
