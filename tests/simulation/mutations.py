"""The deliberate faults of mutants.py."""

from __future__ import annotations

from tests.simulation.mutants import Mutant

_LIFECYCLE = "extender/domain/lifecycle.py"
_JOBS = "extender/control/jobs.py"
_BOOK = "extender/control/jobbook.py"
_ACTIONS = "extender/control/actions.py"
_LEASE = "extender/control/lease.py"
_GANGS = "extender/control/gangs.py"
_SCHEDULING = "extender/control/scheduling.py"
_PLACEMENT = "extender/domain/placement.py"
_RANKS = "extender/domain/ranks.py"
_SUBMITTING = "extender/domain/submitting.py"
_RECOVERY = "extender/domain/recovery.py"
_RESTARTS = "extender/domain/restarts.py"

MUTANTS = (
    Mutant(
        "submit without having looked",
        _LIFECYCLE,
        "    if not certain:\n",
        "    if False:\n",
        ("one live job",),
        seeds=(347,),
    ),
    Mutant(
        "a submit without an answer did not happen",
        _JOBS,
        "        self._unanswered[gang_id] = time.monotonic() + seconds\n",
        "",
        ("one live job",),
        seeds=(347,),
    ),
    Mutant(
        "submit before all pods exist",
        _SUBMITTING,
        "    if len(ready) < wanted:\n",
        "    if not ready:\n",
        ("all or none",),
        seeds=(32,),
    ),
    Mutant(
        "release before all pods are there",
        _LIFECYCLE,
        "    if not living and len(ranks) < tasks and not _some_have_ended(job, placed):\n",
        "    if False:\n",
        ("all or none",),
        seeds=(144,),
    ),
    Mutant(
        "give the nodes back at deletionTimestamp",
        _LIFECYCLE,
        "    living = living_on(gang, job) + stranded\n"
        "    present = [p for p in gang.pods if not p.terminal]\n",
        "    living = living_on(gang, job) + stranded\n"
        "    present = [p for p in gang.pods if not p.terminal and not p.deleting]\n",
        ("held to the end",),
    ),
    Mutant(
        "never end a job whose pods have ended",
        _RESTARTS,
        '    return Decision(GangState.ENDING, f"{sentence(why)} Slurm job {job.id} ends.", (end,), job)\n',
        '    return Decision(GangState.ENDING, f"{sentence(why)} Slurm job {job.id} ends.", (), job)\n',
        ("no orphan", "settles"),
    ),
    Mutant(
        "no answer means that the job has ended",
        _JOBS,
        "        job = await self._slurm.job(job_id)\n",
        "        try:\n"
        "            job = await self._slurm.job(job_id)\n"
        "        except SlurmUnavailable:\n"
        "            job = before and msgspec.structs.replace(before, state=JobState.CANCELLED)\n",
        ("nothing on silence",),
        seeds=(52,),
    ),
    Mutant(
        "evict the pods of an unknown job",
        _RECOVERY,
        "        return Decision(GangState.LOST, why, (Trace(number),))\n",
        "        leaving = tuple(Evict(p, why) for p in stranded)\n"
        "        return Decision(GangState.LOST, why, leaving)\n",
        ("nothing on silence",),
        seeds=(448,),
    ),
    Mutant(
        "evict pods whose job Sluice gave back",
        _LIFECYCLE,
        "    return job.stamp is not None and not job.stamp.outcome and pod.created",
        "    return job.stamp is not None and pod.created",
        ("nothing on silence",),
    ),
    Mutant(
        "of two jobs keep the one without pods",
        _LIFECYCLE,
        "    return (not living_on(gang, job), ",
        "    return (bool(living_on(gang, job)), ",
        ("nothing on silence", "held to the end"),
        seeds=(21,),
    ),
    Mutant(
        "a number that comes again is the same job",
        _BOOK,
        "        return (told.stamp.id, told.stamp.first) != (ours.stamp.id, ours.stamp.first)\n",
        "        return False\n",
        ("held to the end", "foreign job", "nothing on silence", "one live job", "settles"),
        seeds=(216,),
    ),
    Mutant(
        "nothing is looked up when another begins to lead",
        _GANGS,
        "                self._jobs.unanswered(gang_id, _PREDECESSOR_SECONDS)\n"
        "        self._jobs.doubt()\n",
        "                pass\n",
        ("one live job",),
        seeds=(362,),
    ),
    Mutant(
        "lead on without renewing",
        _LEASE,
        "        self._until = asked + self._duration - self._margin\n",
        "        self._until = asked + 10 * self._duration\n",
        ("one acts",),
        seeds=(78,),
    ),
    Mutant(
        "a start is not saved",
        _LIFECYCLE,
        "    return Decision(decided.state, decided.reason, (Confirm(job), *decided.actions), job)\n",
        "    return decided\n",
        ("start saved",),
        seeds=(69,),
    ),
    Mutant(
        "ranks in the order of a list",
        _RANKS,
        "        keyed = {rank_key(p) or 0: p for p in one_per_rank(unplaced)}\n",
        "        keyed = dict(enumerate(one_per_rank(unplaced)[::-1]))\n",
        ("ranks",),
    ),
    Mutant(
        "nodes in Slurm's order",
        _PLACEMENT,
        "    ordered = sorted(shares, key=lambda share: fabric_order(nodes[share.name]))\n",
        "    ordered = list(shares)\n",
        ("ranks in order",),
    ),
    Mutant(
        "one rank more than a node holds",
        _PLACEMENT,
        "    return min(limits)\n",
        "    return min(limits) + 1\n",
        ("one pod a slot", "ranks in order"),
    ),
    Mutant(
        "bind without looking at the job",
        _SCHEDULING,
        "        if job is None or job.state is not JobState.RUNNING or job.stamp is None:\n",
        "        if job is None or job.stamp is None:\n",
        ("in its allocation",),
        seeds=(773,),
    ),
    Mutant(
        "bind before the answers are written",
        _SCHEDULING,
        "        if not pod.gated and names.JOB_ID not in pod.annotations:\n",
        "        if False:\n",
        ("in its allocation",),
        seeds=(168,),
    ),
    Mutant(
        "pods of an ended job stay",
        _LIFECYCLE,
        "        leaving = {p.uid: _evict(p, job) for job, p in losses if not p.deleting}\n",
        "        leaving: dict[str, Evict] = {}\n",
        ("settles",),
    ),
    Mutant(
        "errors[] are not read",
        "extender/slurm/restd.py",
        "        if decoded.errors and not done(decoded):\n",
        "        if False:\n",
        ("nothing on silence", "one live job", "held to the end", "settles", "no defect"),
        seeds=(166,),
        wiring="http",
    ),
    Mutant(
        "what was not answered was not sent",
        "extender/slurm/restd.py",
        "        failure = SlurmUnavailable if sent else SlurmUnsent\n",
        "        failure = SlurmUnsent\n",
        ("one live job",),
        wiring="http",
    ),
    Mutant(
        "jobs of other clusters are ours",
        "extender/slurm/rest.py",
        "return job.stamp is not None and job.stamp.sluice != self._cluster",
        "return False",
        ("foreign job",),
        seeds=(128,),
        wiring="http",
    ),
    Mutant(
        "a job refused at submit was one",
        "extender/slurm/reading.py",
        "    return state(info.job_state) is not JobState.FAILED or",
        "    return True or",
        ("nothing on silence",),
        wiring="http",
    ),
)
