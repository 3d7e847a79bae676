"""From slurmrestd's errors to ours: the one place where error numbers become sentences.

Numbers are slurm/slurm_errno.h's; those in the contract tests were caused on slurmctld 26.05.5.
The body decides, not the HTTP status: slurmrestd answers 500 for a field that it cannot parse
(9202, 9207) and 403 "Operation not permitted" (1) when a DELETE did not reach slurmctld.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.domain.model import JobRequest
from extender.slurm.port import SlurmDenied, SlurmError, SlurmRefused, SlurmUnavailable
from extender.slurm.wire import Problem

NO_SUCH_JOB = 2017
ENDED = frozenset({NO_SUCH_JOB, 2021})  # purged, or "already completing or completed"

_ACCESS_DENIED = 2002
_USER_ID = 2010
# SLURM_PROTOCOL_AUTHENTICATION_ERROR, and ESLURM_AUTH_* (6000-6099)
_AUTHENTICATION = 1007
# A controller in standby, one that shuts down, and a slurmdbd that cannot be reached
_AWAY = frozenset({2027, 2041, 2131, 7000, 7008})
_EINVAL = 22  # new/node/: a GRES type that gres.conf does not have
_UNREADABLE = 9202  # a field of the body cannot be parsed

_DEPENDENCY = (
    "dependency {r.dependency!r} is malformed or names a job that Slurm does not know: write it as"
    " in sbatch --dependency, afterok:<job id>"
)
_RESERVATION = "reservation {r.reservation!r} does not exist in Slurm or is not for {partition}"
_TIME_LIMIT = "a time limit of {r.time_limit_minutes} minutes is not allowed in {partition}"
_NO_USER = (
    "the Slurm host knows no user {user} with the group that jobs are to run under ({said}): add"
    " them there, or map another user"
)
_SENTENCES = {
    2000: "partition {partition} does not exist in Slurm: name another",
    2001: "Slurm has no default partition: name one",
    2003: "user {user} is in no group that partition {partition} admits: name another",
    2007: "Slurm holds as many jobs as it may (MaxJobCount): try again when some have ended",
    2012: "the job's name or comment is too long for Slurm (1,024 bytes): shorten it",
    2014: "no node of partition {partition} can ever hold {shape}: ask for less",
    2018: "a node that was excluded is not one of Slurm's",
    2029: "constraint {r.constraint!r} names a feature that no node has, or is no valid expression",
    2038: _DEPENDENCY,
    2045: "account {account} does not exist in Slurm, or user {user} may not use it in partition"
    " {partition}: name another, or have the user added to it",
    2048: "licenses {r.licenses!r} are not ones that Slurm has that many of: see scontrol show"
    " licenses",
    2050: "a limit of account {account}, user {user} or QOS {qos} forbids this job: ask for less"
    " or for a higher limit",
    2051: _TIME_LIMIT,
    2052: "user {user} may not use reservation {r.reservation!r}",
    2053: _RESERVATION,
    2054: _TIME_LIMIT,
    2056: _RESERVATION,
    2057: "wckey {r.wckey!r} is not one of user {user}'s",
    2066: "QOS {qos} does not exist in Slurm, or account {account} of user {user} may not use it",
    2070: "partition {partition} takes no jobs now",
    2071: _DEPENDENCY,
    2072: "Slurm knows no {gres}: see GresTypes in slurm.conf",
    2101: "partition {partition} takes no jobs now",
    2105: "Slurm takes no new jobs now (submissions are disabled)",
    2115: "Slurm knows no {gres}: see GresTypes in slurm.conf",
    2119: "Slurm knows no {gres}: see GresTypes in slurm.conf",
    2123: "nice {r.nice} is out of range, or negative without the right to that",
    2163: _NO_USER,
    2164: _NO_USER,
    2165: _NO_USER,
    2166: _NO_USER,
    _UNREADABLE: "begin {r.begin!r} is no time that Slurm can read: as in sbatch --begin",
    8000: _TIME_LIMIT,
}


def failure(problems: Sequence[Problem], status: int, what: str) -> SlurmError:
    """The error for a body with ``errors[]``. ``what`` was tried: "read job 12"."""
    problem = problems[0]
    code, said = problem.error_number, _said(problem)
    if code == _AUTHENTICATION or 6000 <= code < 6100 or status in (401, 511):
        return denied(what)
    if code in (_ACCESS_DENIED, _USER_ID):
        return SlurmDenied(
            f"the Slurm token's user may not {what} ({said}): Sluice needs a token of SlurmUser"
            " or root"
        )
    # Below 2000: no number (-1), errno (1 is SLURM_ERROR read as EPERM), communication (1000-1999)
    if (code < 2000 and code != _EINVAL) or code in _AWAY or 5000 <= code < 6000:
        return SlurmUnavailable(f"slurmctld did not {what}: {said}")
    return SlurmRefused(f"Slurm refused to {what}: {said}", code)


def denied(what: str) -> SlurmDenied:
    return SlurmDenied(
        f"Slurm did not accept the token to {what}: it has expired, is malformed, or was signed"
        " with another key"
    )


def submit_failure(problems: Sequence[Problem], status: int, request: JobRequest) -> SlurmError:
    """The error for a refused job: a sentence that names what in the request was wrong."""
    problem = problems[0]
    code = problem.error_number
    if code == _ACCESS_DENIED:
        return SlurmRefused(
            f"user {request.user!r} may not use partition {_or_default(request.partition)}"
            " (Access/permission denied); if no job at all can be submitted, the Slurm token is"
            " not one of SlurmUser or root",
            code,
        )
    if sentence := _sentence(problem, request):
        return SlurmRefused(sentence, code)
    return failure(problems, status, "submit the job")


def _sentence(problem: Problem, request: JobRequest) -> str:
    """What a person needs to know about a refused submit; "" for a number not known here."""
    if problem.error_number == _UNREADABLE and not request.begin:
        return ""
    return _SENTENCES.get(problem.error_number, "").format(
        user=repr(request.user),
        account=_or_default(request.account),
        partition=_or_default(request.partition),
        qos=_or_default(request.qos),
        shape=_shape(request),
        gres=f"gres/gpu:{request.gpu_type}" if request.gpu_type else "gres/gpu",
        said=_said(problem),
        r=request,
    )


def _or_default(name: str) -> str:
    return repr(name) if name else "(Slurm's default)"


def _shape(request: JobRequest) -> str:
    gpus = f", {request.gpus_per_task} {request.gpu_type or ''} GPUs".replace("  ", " ")
    return (
        f"a rank of {request.cpus_per_task} CPUs, {request.memory_mib_per_task} MiB"
        f"{gpus if request.gpus_per_task else ''}"
        f"{f' with {request.constraint!r}' if request.constraint else ''}"
        f"{' outside the excluded nodes' if request.excluded_nodes else ''}"
    )


def _said(problem: Problem) -> str:
    """Slurm's own words, once: "Invalid user id (slurm_update_job2() 2010)"."""
    words = [word for word in (problem.description, problem.error) if word]
    text = ": ".join(dict.fromkeys(words)) or "no reason given"
    return f"{text} ({problem.error_number})"
