"""End external Slurm jobs with an exit code, which slurmrestd cannot: it only cancels.

A plain program for the standard library alone, to run where libslurm and slurm.conf are:

    python3 complete.py              lines "<job id> <wait status>" on standard input; each is
                                     answered by "<job id> ok" or "<job id> <why not>"
    python3 complete.py 17 768       the same for one job; exit code 1 when it failed

A wait status is what wait(2) gives: the exit code times 256, or the number of a signal. 0 makes
the job COMPLETED, everything else FAILED. The RPC is that of slurm_complete_job()
(src/api/complete.c), with which salloc ends its own job; SlurmUser, root and the job's owner may
call it, also by SLURM_JWT.
"""

from __future__ import annotations

import ctypes
import os
import sys
from glob import glob

NO_VAL = 0xFFFFFFFE
STRUCT_SINCE = 44 << 16  # of slurm_api_version(): 25.11; before, slurm_complete_job() took a job id
LIBRARIES = (
    "/usr/lib/*/slurm-wlm/libslurmfull.so",  # Debian
    "/usr/lib*/slurm/libslurmfull.so",
    "/usr/local/lib/slurm/libslurmfull.so",
    "/opt/slurm/lib*/slurm/libslurmfull.so",
)


class StepId(ctypes.Structure):
    """slurm_step_id_t of 25.11 and later; all of a job."""

    _fields_ = (
        ("sluid", ctypes.c_uint64),
        ("job_id", ctypes.c_uint32),
        ("step_het_comp", ctypes.c_uint32),
        ("step_id", ctypes.c_uint32),
    )


def load() -> ctypes.CDLL:
    """libslurmfull, initialized from slurm.conf. Its plugins need its symbols to be global."""
    named = os.environ.get("SLURM_LIBRARY")
    found = [named] if named else [path for pattern in LIBRARIES for path in glob(pattern)]
    if not found:
        sys.exit("libslurmfull.so is not here: name it in SLURM_LIBRARY")
    library = ctypes.CDLL(found[0], mode=ctypes.RTLD_GLOBAL, use_errno=True)
    library.slurm_api_version.restype = ctypes.c_long
    library.slurm_strerror.restype = ctypes.c_char_p
    library.slurm_init(None)
    return library


def complete(library: ctypes.CDLL, job_id: int, wait_status: int) -> str:
    """End the job; "ok", or why it was not ended."""
    if library.slurm_api_version() >= STRUCT_SINCE:
        step = ctypes.byref(StepId(0, job_id, NO_VAL, NO_VAL))
        failed = library.slurm_complete_job(step, ctypes.c_uint32(wait_status))
    else:
        failed = library.slurm_complete_job(ctypes.c_uint32(job_id), ctypes.c_uint32(wait_status))
    return library.slurm_strerror(ctypes.get_errno()).decode() if failed else "ok"


def answer(library: ctypes.CDLL, line: str) -> str:
    """The answer to one line of input."""
    words = line.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return f"{words[0] if words else '-'} not a job id and a wait status"
    return f"{words[0]} {complete(library, int(words[0]), int(words[1]))}"


def main(arguments: list[str]) -> int:
    library = load()
    if arguments:
        said = answer(library, " ".join(arguments))
        print(said)
        return 0 if said.endswith(" ok") else 1
    for line in sys.stdin:
        print(answer(library, line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
