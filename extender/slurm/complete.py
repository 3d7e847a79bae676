"""End external Slurm jobs with an exit code, which slurmrestd cannot: it only cancels.

A plain program for the standard library alone, to run where libslurm and slurm.conf are:

    python3 complete.py              lines "<job id> <wait status>" on standard input; each is
                                     answered by "<job id> ok" or "<job id> <why not>"
    python3 complete.py 17 768       the same for one job; exit code 1 when it failed
    python3 complete.py --token-file /run/slurm-token
                                     with the token in that file, which is read for every job

A wait status is what wait(2) gives: the exit code times 256, or the number of a signal. 0 makes
the job COMPLETED, everything else FAILED. The RPC is that of slurm_complete_job()
(src/api/complete.c), with which salloc ends its own job; SlurmUser, root and the job's owner may
call it, also by a token: SLURM_JWT, or --token-file for one that is renewed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import signal
import sys
from glob import glob

NO_VAL = 0xFFFFFFFE
STRUCT_SINCE = 44 << 16  # of slurm_api_version(): 25.11; before, slurm_complete_job() took a job id
AUTHENTICATION = 1007  # SLURM_PROTOCOL_AUTHENTICATION_ERROR
PR_SET_PDEATHSIG = 1
SECONDS = 8.0  # whoever asks waits 10
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
    """libslurmfull. Its plugins need its symbols to be global."""
    named = os.environ.get("SLURM_LIBRARY")
    found = [named] if named else [path for pattern in LIBRARIES for path in glob(pattern)]
    if not found:
        sys.exit("libslurmfull.so is not here: name it in SLURM_LIBRARY")
    library = ctypes.CDLL(found[0], mode=ctypes.RTLD_GLOBAL, use_errno=True)
    library.slurm_api_version.restype = ctypes.c_long
    library.slurm_strerror.restype = ctypes.c_char_p
    return library


def read_token(path: str) -> str:
    """The token in a file, with or without the SLURM_JWT= of `scontrol token`. Raises OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip().removeprefix("SLURM_JWT=")


def complete(library: ctypes.CDLL, job_id: int, wait_status: int, token_file: str = "") -> str:
    """End the job; "ok", or why it was not ended.

    In a process of its own: the library reads slurm.conf and SLURM_JWT only once (slurm_fini() and
    slurm_init() again crash with 24.11), and it ends the process when it dislikes what it reads.
    """
    try:
        token = read_token(token_file) if token_file else ""
    except OSError as error:
        return f"the token file {token_file} cannot be read: {error.strerror}"
    if token_file and not token:
        return f"the token file {token_file} is empty"
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if token_file:
                os.environ["SLURM_JWT"] = token
            os.write(writes, call(library, job_id, wait_status).encode())
        except (AttributeError, ValueError) as error:  # not the library that we know, a bad token
            os.write(writes, str(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    in_time, _, _ = select.select([reads], [], [], SECONDS)
    if not in_time:
        os.kill(child, signal.SIGKILL)
    with open(reads, encoding="utf-8") as answered:
        said = answered.read()
    os.waitpid(child, 0)
    if not in_time:
        return f"libslurm did not come back in {SECONDS:g} s: is slurmctld in reach?"
    return said or "libslurm gave up; what it says of slurm.conf is on standard error"


def call(library: ctypes.CDLL, job_id: int, wait_status: int) -> str:
    """``slurm_complete_job()``; "ok", or why it failed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    library.slurm_init(None)
    if library.slurm_api_version() >= STRUCT_SINCE:
        step = ctypes.byref(StepId(0, job_id, NO_VAL, NO_VAL))
        failed = library.slurm_complete_job(step, ctypes.c_uint32(wait_status))
    else:
        failed = library.slurm_complete_job(ctypes.c_uint32(job_id), ctypes.c_uint32(wait_status))
    if not failed:
        return "ok"
    why: str = library.slurm_strerror(ctypes.get_errno()).decode()
    if ctypes.get_errno() == AUTHENTICATION and "SLURM_JWT" in os.environ:
        why += ": the token has expired, or another key than slurmctld's signed it"
    return why


def answer(library: ctypes.CDLL, line: str, token_file: str = "") -> str:
    """The answer to one line of input."""
    words = line.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return f"{words[0] if words else '-'} not a job id and a wait status"
    return f"{words[0]} {complete(library, int(words[0]), int(words[1]), token_file)}"


def main() -> int:
    parser = argparse.ArgumentParser(description="End external Slurm jobs with an exit code.")
    parser.add_argument("--token-file", default="", metavar="PATH", help="instead of SLURM_JWT")
    parser.add_argument("order", nargs="*", help="a job id and a wait status; else standard input")
    arguments = parser.parse_args()
    library = load()
    if arguments.order:
        said = answer(library, " ".join(arguments.order), arguments.token_file)
        print(said)
        return 0 if said.endswith(" ok") else 1
    for line in sys.stdin:
        print(answer(library, line, arguments.token_file), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
