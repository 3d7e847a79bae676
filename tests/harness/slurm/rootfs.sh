#!/bin/bash
# Run inside the image once: the users that own daemons and jobs.
set -eu
useradd --system --no-create-home --shell /usr/sbin/nologin slurmrest
for user in alice:2001 bob:2002 carol:2003; do
    groupadd --gid "${user#*:}" "${user%:*}"
    useradd --uid "${user#*:}" --gid "${user#*:}" --create-home --shell /bin/bash "${user%:*}"
done
mkdir -p /etc/slurm /var/log/slurm
