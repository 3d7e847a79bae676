"""From slurmrestd's errors to ours: the one place where error numbers become sentences.

Numbers are slurm/slurm_errno.h's; each that has a sentence here was caused on slurmctld 26.05.5.
The body decides, not the HTTP status: slurmrestd answers 500 for a field that it cannot parse
(9202, 9207) and 403 "Operation not permitted" (1) when a DELETE did not reach slurmctld.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.domain.model import JobRequest
from extender.slurm import port
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
    user, account = repr(request.user), _or_default(request.account)
    partition, qos = _or_default(request.partition), _or_default(request.qos)
    match problem.error_number:
        case 2000:
            return f"partition {partition} does not exist in Slurm: name another"
        case 2001:
            return "Slurm has no default partition: name one"
        case 2003:
            return f"user {user} is in no group that partition {partition} admits: name another"
        case 2007:
            return "Slurm holds as many jobs as it may (MaxJobCount): try again when some ended"
        case 2012:
            return "the job's name or comment is too long for Slurm (1,024 bytes): shorten it"
        case 2014:
            return f"no node of partition {partition} can ever hold {_shape(request)}: ask for less"
        case port.UNKNOWN_NODE:
            return "a node that was excluded is not one of Slurm's"
        case 2029:
            return (
                f"constraint {request.constraint!r} names a feature that no node has, or is no"
                " valid expression"
            )
        case 2038 | 2071:
            return (
                f"dependency {request.dependency!r} is malformed or names a job that Slurm does"
                " not know: write it as in sbatch --dependency, afterok:<job id>"
            )
        case 2045:
            return (
                f"account {account} does not exist in Slurm, or user {user} may not use it in"
                f" partition {partition}: name another, or have the user added to it"
            )
        case 2048:
            return (
                f"licenses {request.licenses!r} are not ones that Slurm has that many of:"
                " see scontrol show licenses"
            )
        case 2050:
            return (
                f"a limit of account {account}, user {user} or QOS {qos} forbids this job:"
                " ask for less or for a higher limit"
            )
        case 2051 | 2054 | 8000:
            return f"time limit {request.time_limit_minutes} minutes is not allowed here"
        case 2052:
            return f"user {user} may not use reservation {request.reservation!r}"
        case 2053 | 2056:
            return (
                f"reservation {request.reservation!r} does not exist in Slurm or is not for"
                f" partition {partition}"
            )
        case 2057:
            return f"wckey {request.wckey!r} is not one of user {user}'s"
        case 2066:
            return (
                f"QOS {qos} does not exist in Slurm, or account {account} of user {user} may not"
                " use it"
            )
        case 2070 | 2101:
            return f"partition {partition} takes no jobs now"
        case 2072 | 2115 | 2119:
            return f"Slurm knows no {_gres(request)}: see GresTypes in slurm.conf"
        case 2105:
            return "Slurm takes no new jobs now (submissions are disabled)"
        case 2123:
            return f"nice {request.nice} is out of range, or negative without the right to that"
        case 2163 | 2164:
            return (
                f"the Slurm host knows no user {user} with the group that jobs are to run under"
                f" ({_said(problem)}): add them there, or map another user"
            )
        case 6010 | 2165 | 2166:
            return f"the Slurm host knows no user {user}: add it there, or map another user"
        case 9202 if request.begin:
            return f"begin {request.begin!r} is no time that Slurm can read: as in sbatch --begin"
        case _:
            return ""


def _or_default(name: str) -> str:
    return repr(name) if name else "(Slurm's default)"


def _gres(request: JobRequest) -> str:
    return f"gres/gpu:{request.gpu_type}" if request.gpu_type else "gres/gpu"


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
