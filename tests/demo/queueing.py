"""The later chapters: a gang that waits, backfill past it, its turn, and accounting."""

from __future__ import annotations

import time

from tests.demo import claims, views
from tests.demo.claims import Record
from tests.demo.facts import Facts
from tests.demo.placing import TEAM
from tests.demo.teller import EXAMPLES, Teller

LARGE = 12  # pods, one to a node
# Slurm's planning is as fine as bf_resolution in slurm.conf.
PLAN_SECONDS = 60
VIEW_LINES = 5
RUN_SECONDS = 1.0  # so that accounting has seconds to show
FIELDS = "JobID,JobName,User,Account,State,NNodes,NodeList,Elapsed,AllocTRES,Flags,AdminComment"
RECORDS = {
    "sim-a": Record("vision", 16, runs=True),
    "sim-b": Record("vision", 16, runs=True),
    "train": Record("ml", 32),
    "large": Record("ml", 96),
    "small": Record("ml", 8),
}


def wait(teller: Teller) -> None:
    """A gang too large for what is left."""
    screen = teller.screen
    free = 8 * len(teller.read().free())
    screen.say(f"12 pods of 8 GPUs: 96 GPUs, while {free} are free.")
    screen.commands(f"kubectl apply -n {TEAM} -f {EXAMPLES}/large.yaml")
    teller.apply("large", TEAM)
    teller.claim(
        "Slurm has queued it, and has planned its start.",
        lambda now: claims.waits(now, "large"),
        30,
    )
    screen.say("Why it is pending and until when, from Sluice, in plain words:")
    screen.commands(
        f"curl -s -H 'Accept: text/plain' {teller.explain_url(TEAM, 'large')} | head -n {VIEW_LINES}"
    )
    view = teller.explain(TEAM, "large", "text/plain").text
    screen.output("\n".join(view.splitlines()[:VIEW_LINES]))
    facts = teller.claim(
        "That is the reason and the start that Slurm has.",
        lambda now: teller.says_the_same(TEAM, now.jobs["large"]),
    )
    minutes = (facts.jobs["large"].started - time.time()) / 60
    screen.say(
        f"The start is {minutes:.0f} minutes away, because Slurm plans with the time limit of train. "
        "When train ends early, large starts early."
    )
    teller.claim(
        "An Event of the Job (kubectl describe job large) and a condition of each pod say it too.",
        lambda now: claims.told_in_kubernetes(now, TEAM, "large"),
        15,
    )
    teller.claim(
        "While it waits it holds nothing: no pod bound, no node allocated.",
        lambda now: claims.holds_nothing(now, TEAM, "large", LARGE),
    )


def backfill(teller: Teller) -> None:
    """A small Job that came later runs first, because it is over before the large one may start."""
    screen = teller.screen
    before = teller.read().jobs["large"]
    screen.say(
        "2 pods of 4 GPUs for 2 minutes. It came later, but will be over before large can start "
        "anyway, so Slurm runs it in the gap (backfill)."
    )
    screen.commands(f"kubectl apply -n {TEAM} -f {EXAMPLES}/small.yaml")
    teller.apply("small", TEAM)
    facts = teller.claim(
        "small runs; large, which was there first, still waits.",
        lambda now: (
            claims.all_run(now, TEAM, "small", 2)
            or claims.where_slurm_says(now, TEAM, "small")
            or claims.passes(now, "small", "large")
        ),
        30,
    )
    screen.table(*views.racks(facts))
    teller.claim(
        "large loses nothing by it: to the minute, Slurm plans its start as before.",
        lambda now: claims.not_later(before, now.jobs["large"], PLAN_SECONDS),
    )
    teller.claim(
        "It still holds nothing.", lambda now: claims.holds_nothing(now, TEAM, "large", LARGE)
    )
    time.sleep(RUN_SECONDS)
    screen.say("Then the program in small ends.")
    _ends(teller, "small")


def turn(teller: Teller) -> None:
    """The first ends, the second starts."""
    screen = teller.screen
    screen.say("train is done, well before its time limit.")
    _ends(teller, "train")
    facts = teller.claim(
        "large starts: all 12 pods run, on the 12 nodes of its Slurm job.",
        lambda now: (
            claims.takes_over(now, "train", "large")
            or claims.all_run(now, TEAM, "large", LARGE)
            or claims.where_slurm_says(now, TEAM, "large")
        ),
        30,
    )
    teller.claim(
        "Its ranks follow the network, rack after rack.",
        lambda now: claims.in_rank_order(now, now.places_of(TEAM, "large")),
    )
    screen.table(*views.by_rack(facts.places_of(TEAM, "large")))
    time.sleep(RUN_SECONDS)
    screen.say("Then large ends, too.")
    _ends(teller, "large")


def _ends(teller: Teller, job: str) -> None:
    """The programs end, and with them the Slurm job."""
    teller.program_ends(job, TEAM)
    teller.claim(
        f"The pods of {job} have ended, and so has its Slurm job.",
        lambda now: claims.over(now, TEAM, job),
        20,
    )


def accounting(teller: Teller) -> None:
    """What Slurm has written down."""
    screen = teller.screen
    screen.say("Each gang was one Slurm job, so fair-share, limits and reports are what they were.")
    screen.commands(
        "sacct -X --allusers -o jobid,jobname,user,account,state,nnodes,nodelist,alloctres,elapsed"
    )
    rows: list[dict[str, str]] = []

    def recorded(_: Facts) -> str:
        rows[:] = teller.stack.slurm.sacct(fields=FIELDS)
        return claims.recorded(rows, RECORDS)

    teller.claim("Every job is there with its account and its GPUs, none twice.", recorded, 20)
    screen.table(*views.accounting(rows))
    teller.claim(
        "Slurm itself has noted that backfill started small.",
        lambda _: claims.backfilled(rows, "small"),
    )
    teller.claim(
        "Slurm's comment on each job that ended says why: all pods have ended.",
        lambda _: claims.ended_well(rows, RECORDS),
    )
    if any(row["State"].startswith("CANCELLED") for row in rows):
        screen.say(
            "(CANCELLED is Slurm's word for any external job that is ended through its REST "
            "interface, whatever became of the pods.)"
        )
