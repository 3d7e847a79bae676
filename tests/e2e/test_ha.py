"""Two replicas: any answers kube-scheduler, one acts. Whatever becomes of the one that acts, the
other does its work, and nothing is done twice.

kube-scheduler asks the replica that stands by at first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.faults import HELD, Bystanders
from tests.e2e.jobs import gang, indexed_job
from tests.e2e.replicas import LEASE_SECONDS, Pair, Replica, pair_of
from tests.e2e.site import ML, Site, answers, eventually, node_of, nodes_of, steadily, told, uids
from tests.e2e.tap import Call, Tap
from tests.harness.stack import Stack

pytestmark = pytest.mark.e2e

AWAY: dict[str, tuple[Callable[[Replica], None], Callable[[Replica], None]]] = {
    "frozen": (Replica.freeze, Replica.thaw),
    "cut off from the API server": (lambda r: r.kube.cut(), lambda r: r.kube.mend()),
}
SCHEDULER_LEASE = "/apis/coordination.k8s.io/v1/namespaces/sluice-system/leases/sluice-scheduler"


@pytest.fixture
def pair(stack: Stack, tap: Tap) -> Iterator[Pair]:
    with pair_of(stack, tap) as pair:
        yield pair


@pytest.fixture
def site(pair: Pair) -> Site:
    return pair.site


def before(site: Site) -> None:
    """Beside the bystanders run two small gangs; eight nodes are free."""
    site.submit(ML, *gang("victim", 2), *gang("done", 2))
    site.bound(2, prefix="victim")
    site.bound(2, prefix="done")


def large(site: Site) -> None:
    """A gang of 64 pods comes, for all the nodes that are free."""
    site.submit(ML, indexed_job("train", 64, gpus=1, cpus=1, memory="1Gi"))


def happens(site: Site) -> None:
    """A Slurm job is cancelled, pods end, and a gang comes that has to wait for their nodes."""
    site.cancel(site.job("victim", "RUNNING")["job_id"])
    site.finish("done-0")
    site.finish("done-1")
    site.submit(ML, indexed_job("next", 4))


def is_dealt_with(site: Site) -> None:
    """Wait until all of it is done, and see that nothing of it was done twice."""
    eventually(lambda: site.pods(prefix="victim"), lambda left: not left, 20, "the pods to go")
    site.ended("done")
    placed(site, "train", 64)
    placed(site, "next", 4)
    assert [len(site.jobs(name)) for name in ("train", "next", "victim", "done")] == [1] * 4


def placed(site: Site, name: str, pods: int) -> None:
    """The gang runs on the nodes of its job, each rank at its place."""
    bound = site.bound(pods, prefix=name, seconds=40)
    job = site.job(name, "RUNNING")
    assert {answers(p)["job-id"] for p in bound} == {str(job["job_id"])}
    assert [answers(p)["rank"] for p in bound] == [str(i) for i in range(pods)]
    where = [node_of(p) for p in bound]
    assert set(where) == set(nodes_of(job))
    assert where == sorted(where, key=site.order.index)


def test_one_acts_and_the_other_answers(pair: Pair, site: Site, bystanders: Bystanders) -> None:
    pair.forget()
    site.submit(ML, indexed_job("train", 4), *gang("done", 2))
    placed(site, "train", 4)
    site.bound(2, prefix="done")
    for name in ("done-0", "done-1"):
        site.finish(name)
    site.ended("done")
    waiting = site.pods(prefix="queued")[0]["metadata"]["name"]
    eventually(lambda: site.events(about=waiting), bool, 10, "an Event for who waits")
    assert (len(pair.leader.slurm.submits()), len(pair.leader.releases())) == (2, 6)
    assert (len(pair.leader.binds()), len(pair.standby.binds())) == (0, 6)
    assert pair.standby.acts() == []
    assert pair.leader.leads()
    assert pair.standby.stands_by()
    bystanders.check()


@pytest.mark.usefixtures("bystanders")
def test_the_leader_is_killed_while_it_releases_a_gang(pair: Pair, site: Site) -> None:
    """At the twentieth of 64 pods."""
    before(site)
    pair.start(fault="release after 20")
    large(site)
    eventually(lambda: pair.leader.sluice.alive, lambda alive: not alive, 30, "the leader to die")
    died = time.time()
    happens(site)
    pair.standby_acts(since=died)
    is_dealt_with(site)
    assert len(pair.leader.releases()) == 20
    assert pair.standby.leads()


@pytest.mark.usefixtures("bystanders")
def test_the_leader_is_stopped_in_good_order(pair: Pair, site: Site) -> None:
    """It gives the lease back: nobody has to wait for its end."""
    before(site)
    pair.leader.sluice.stop()
    eventually(pair.standby.leads, bool, LEASE_SECONDS / 2, "the other replica to lead")
    large(site)
    happens(site)
    is_dealt_with(site)
    pair.leader.start()
    assert pair.leader.stands_by()


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.usefixtures("bystanders")
def test_a_leader_that_was_away_writes_nothing_stale(pair: Pair, site: Site, how: str) -> None:
    """It goes while it releases a gang, comes back when the other has done everything, and stands
    by until it leads again."""
    leaves, returns = AWAY[how]
    old, new = pair.leader, pair.standby
    before(site)
    pair.forget()
    large(site)
    eventually(old.releases, lambda released: len(released) > 10, 30, "the release to be under way")
    leaves(old)
    left = time.time()
    assert {told(p) for p in site.pods(prefix="train")} > {"gated"}
    happens(site)
    pair.standby_acts(since=left)
    is_dealt_with(site)
    returns(old)
    eventually(old.stands_by, bool, 10, "the old leader to stand by")
    steadily(lambda: stale(old, left), lambda acts: not acts, 6, "the old leader writes nothing")
    assert new.leads()

    new.sluice.kill()
    eventually(old.leads, bool, 10, "the old leader to lead again")
    site.delete(ML, "Job", "next")
    site.ended("next")
    site.submit(ML, indexed_job("last", 4))
    site.job("last", "RUNNING", seconds=20)
    new.start()
    placed(site, "last", 4)


def stale(replica: Replica, left: float) -> list[Call]:
    """What it did after its lease had ended."""
    return [call for call in replica.acts() if call.at > left + LEASE_SECONDS]


def test_nobody_acts_while_the_api_server_is_away(
    pair: Pair, site: Site, bystanders: Bystanders
) -> None:
    """The pods run on; afterwards one acts again, on what has happened meanwhile."""
    filler = site.fill(12)
    site.submit(ML, indexed_job("train", 4))
    waiting = uids(site.gated(4, prefix="train"))
    site.job("train", "PENDING")
    apiserver = site.stack.control.children["kube-apiserver"]
    apiserver.kill()
    try:
        eventually(pair.leading, lambda leading: not leading, 10, "nobody to lead")
        pair.forget()
        site.cancel(filler)
        site.job("train", "RUNNING")
        steadily(
            lambda: [*pair.leader.slurm.writes(), *pair.standby.slurm.writes()],
            lambda writes: not writes,
            LEASE_SECONDS,
            "nobody writes to Slurm",
        )
        assert not pair.leader.sluice.ready()
        assert "sluice-system/sluice" in pair.leader.lease()
    finally:
        apiserver.launch()
    placed(site, "train", 4)
    assert uids(site.pods(prefix="train")) == waiting
    assert len(site.jobs("train")) == 1
    assert len(pair.leading()) == 1
    bystanders.check()


@pytest.mark.usefixtures("bystanders")
def test_a_pod_of_sluice_and_kube_scheduler_is_lost(pair: Pair, site: Site) -> None:
    """As in deploy/: each kube-scheduler asks its own Sluice. The node with both leaders dies."""

    def holder() -> str:
        lease = site.kube.find(SCHEDULER_LEASE)
        return str(lease["spec"]["holderIdentity"]) if lease else ""

    with site.stack.control.electing_schedulers() as (standing_by, acting):
        free = holder()
        acting.launch()
        leads = eventually(holder, lambda now: now not in ("", free), 30, "one to be elected")
        standing_by.launch()
        pair.forget()
        site.submit(ML, indexed_job("train", 4))
        placed(site, "train", 4)
        assert (len(pair.leader.binds()), len(pair.standby.binds())) == (4, 0)
        acting.kill()
        pair.leader.sluice.kill()
        site.submit(ML, indexed_job("next", 2), indexed_job("later", 2, annotations=HELD))
        placed(site, "next", 2)
        assert holder() not in ("", leads)
        assert (len(pair.leader.binds()), len(pair.standby.binds())) == (4, 2)
        assert len(site.jobs("next")) == 1
        site.job("later", "PENDING")
        site.gated(2, prefix="later")
