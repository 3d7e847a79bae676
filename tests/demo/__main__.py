"""`python -m tests.demo`: run the demo. Exit code 0 when every claim holds, else 1; 130 for Ctrl-C.

Whatever happens, the stack and all that runs in it is gone at the end.
"""

from __future__ import annotations

import sys
import time

import httpx

from tests.demo import placing, queueing
from tests.demo.screen import Screen
from tests.demo.teller import ClaimFailed, Teller
from tests.harness.errors import HarnessError
from tests.harness.fabric import Fabric
from tests.harness.kube import KubeError
from tests.harness.stack import Stack

FABRIC = Fabric(spines=2, leaves_per_spine=2, nodes_per_leaf=4, gpus_per_node=8)
# The programs in the pods end when the demo says so.
RUN_MILLISECONDS = 24 * 3600 * 1000


CHAPTERS = (
    ("A cluster with two racks partly busy", placing.cluster),
    ("A Job of 4 pods and 32 GPUs, by plain kube-scheduler", placing.plain),
    ("The same Job, placed by Slurm", placing.gang),
    ("A gang that has to wait, and holds nothing meanwhile", queueing.wait),
    ("A small Job goes ahead", queueing.backfill),
    ("The first ends, the second starts", queueing.turn),
    ("What Slurm has written down", queueing.accounting),
)


def run(screen: Screen) -> None:
    """Start the stack, tell the story, end the stack. Raises ClaimFailed and what the parts do."""
    begun = time.monotonic()
    screen.title("Sluice: Slurm decides, Kubernetes runs.")
    screen.say(
        "Everything here is real: etcd, kube-apiserver, two kube-schedulers, slurmctld, slurmdbd, "
        "slurmrestd. Only the nodes are not: kwok plays the kubelets, so no container really runs. "
        "Lines with a $ are what you would type; ✓ is a claim that was checked just then, against "
        "Kubernetes and Slurm themselves. While the parts start, the contents:"
    )
    screen.output("\n".join(f"{i}. {title}" for i, (title, _) in enumerate(CHAPTERS, 1)))
    with Stack.start(FABRIC, run_milliseconds=RUN_MILLISECONDS) as stack:
        stack.sluice.start()
        started = time.monotonic()
        teller = Teller(screen, stack)
        for title, chapter in CHAPTERS:
            screen.heading(title)
            chapter(teller)
        told = time.monotonic()
    ended = time.monotonic()
    screen.title(f"All {teller.claims} claims hold, and nothing is left running.")
    screen.say(
        f"{ended - begun:.0f} s: {started - begun:.0f} to start everything, {told - started:.0f} "
        f"for the story, {ended - told:.0f} to stop."
    )


def main() -> int:
    screen = Screen()
    try:
        run(screen)
    except (ClaimFailed, HarnessError, KubeError, TimeoutError, httpx.HTTPError) as problem:
        print(f"demo: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: stopped; nothing is left running.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
