"""The first chapters: the cluster, plain kube-scheduler, and the same Job placed by Slurm."""

from __future__ import annotations

from tests.demo import busy, claims, views
from tests.demo.facts import Facts
from tests.demo.teller import EXAMPLES, Teller

TEAM = "ml"
PLAIN = "plain"
TOLERATION = {"key": "sluice.dev/slurm", "operator": "Exists", "effect": "NoSchedule"}


def cluster(teller: Teller) -> None:
    """16 nodes that Slurm knows; two racks partly busy."""
    screen, admin = teller.screen, teller.stack.admin
    screen.say(
        "16 nodes of 8 GPUs, in 4 racks under 2 spines. Kubernetes knows that as labels; Sluice has "
        "made a Slurm node of each, with its place in the network."
    )
    teller.claim(
        "Slurm knows the 16 nodes, each below the switch of its rack.",
        lambda now: claims.nodes_known(now, 16),
        15,
    )
    screen.say("An administrator hands a namespace to Slurm, and says who it is there:")
    screen.commands(
        f"kubectl create namespace {TEAM}",
        f"kubectl annotate namespace {TEAM} sluice.dev/user=alice sluice.dev/account=ml",
        f"kubectl label namespace {TEAM} sluice.dev/managed=true",
    )
    for namespace, user, account in ((TEAM, "alice", "ml"), (busy.NAMESPACE, "carol", "vision")):
        admin.namespace(
            namespace,
            labels={"sluice.dev/managed": "true"},
            annotations={"sluice.dev/user": user, "sluice.dev/account": account},
        )
    screen.say("Another team has two Jobs, sim-a and sim-b, each kept to the rack of its data.")
    for name in busy.RACKS:
        admin.create(f"/apis/batch/v1/namespaces/{busy.NAMESPACE}/jobs", busy.manifest(name))
    facts = teller.claim(
        "Both run where Slurm put them. 12 nodes, 96 GPUs, are free.", _others_run, 20
    )
    screen.colour(*busy.RACKS, "train", "small", "large")
    screen.table(*views.racks(facts))


def _others_run(facts: Facts) -> str:
    for name, rack in busy.RACKS.items():
        wrong = claims.all_run(facts, busy.NAMESPACE, name, busy.PODS)
        wrong = wrong or claims.where_slurm_says(facts, busy.NAMESPACE, name)
        if not wrong and {p.rack for p in facts.places_of(busy.NAMESPACE, name)} != {rack}:
            wrong = f"{name} is not on {rack}"
        if wrong:
            return wrong
    return claims.free_nodes(facts, 12)


def plain(teller: Teller) -> None:
    """What kube-scheduler does with the Job by itself. The Job is gone after."""
    screen = teller.screen
    screen.say(
        "A training Job of 4 pods with 8 GPUs each. First, to compare with, in a namespace that "
        "Slurm has no part in. This goes first and is removed before Slurm is asked, so that both "
        "find the same 12 nodes free."
    )
    screen.commands(f"kubectl apply -n {PLAIN} -f {EXAMPLES}/train.yaml")
    screen.say("(A toleration is added to it here: Sluice's nodes are tainted against other pods.)")
    teller.stack.admin.namespace(PLAIN)
    teller.apply("train", PLAIN, tolerations=[TOLERATION])
    facts = teller.claim(
        "kube-scheduler has bound the 4 pods, and they run.",
        lambda now: claims.all_run(now, PLAIN, "train", 4),
        20,
    )
    teller.by_plain = facts.places_of(PLAIN, "train")
    screen.table(*views.racks(facts))
    screen.say(
        f"It used {views.spread(teller.by_plain)}: to it, one free node is as good as another."
    )
    teller.claim(
        "Slurm was not asked: its only jobs are the two of the other team.",
        lambda now: claims.only_jobs(now, list(busy.RACKS)),
    )
    screen.commands(f"kubectl delete -n {PLAIN} job train")
    teller.delete("train", PLAIN)
    teller.claim(
        "Its pods are gone, and the same 12 nodes are free again.",
        lambda now: claims.none_left(now, PLAIN, "train") or claims.free_nodes(now, 12),
        15,
    )


def gang(teller: Teller) -> None:
    """The same Job as a gang, beside what plain kube-scheduler made of it."""
    screen = teller.screen
    screen.say(
        "The same file, now in a namespace that Slurm decides for. One line in it is meant for Slurm:"
    )
    screen.commands(f"grep sluice.dev/ {EXAMPLES}/train.yaml")
    screen.output(teller.annotations("train"))
    screen.commands(f"kubectl apply -n {TEAM} -f {EXAMPLES}/train.yaml")
    teller.apply("train", TEAM)
    facts = teller.claim(
        "All 4 pods run, on the very nodes that Slurm allocated to one job.",
        lambda now: (
            claims.all_run(now, TEAM, "train", 4) or claims.where_slurm_says(now, TEAM, "train")
        ),
        20,
    )
    teller.claim(
        "They are on one rack.", lambda now: claims.on_one_rack(now.places_of(TEAM, "train"))
    )
    teller.claim(
        "Rank i is on the i-th node of that rack.",
        lambda now: claims.in_rank_order(now, now.places_of(TEAM, "train")),
    )
    by_plain, places = teller.by_plain, facts.places_of(TEAM, "train")
    screen.colour(*(place.rack for place in facts.places))
    hosts = [pod.host for pod in facts.gang(TEAM, "train")]
    screen.table(*views.side_by_side(hosts, by_plain, places))
    screen.say(
        f"Plain kube-scheduler: {views.spread(by_plain)}. Slurm: {views.spread(places)}. When the "
        f"ranks pass data round in a ring, {views.neighbours(by_plain)} of 4 hops stay within a "
        f"rack with plain kube-scheduler, {views.neighbours(places)} of 4 with Slurm."
    )
