#!/bin/bash
# The container's first process: start all daemons, say so, then collect whatever ends.
set -u
here=$(dirname "$0")
say() { echo "$(date +%T.%3N) $*"; }
await() { # await <what> <command…>: until the command succeeds, 60 s at most
    local what=$1 end=$((SECONDS + 60))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || { say "$what did not come up"; tail -n 20 /var/log/slurm/*; exit 1; }
        sleep 0.05
    done
    say "$what is up"
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

mkdir -p /run/slurmctld /run/slurmdbd /run/mysqld /var/log/slurm /var/lib/slurm/slurmctld
chown slurm:slurm /run/slurmctld /run/slurmdbd /var/log/slurm /var/lib/slurm /var/lib/slurm/slurmctld
chown mysql /run/mysqld
chown slurm:slurm /etc/slurm/*
chmod 0600 /etc/slurm/*.key /etc/slurm/slurmdbd.conf

"$here/daemon.sh" mariadb &
"$here/daemon.sh" slurmrestd &
await mariadb mariadb-admin ping
mariadb -e "create database if not exists slurm_acct_db;
    create user if not exists slurm@localhost identified via unix_socket;
    grant all on slurm_acct_db.* to slurm@localhost"
"$here/daemon.sh" slurmdbd &
await slurmdbd listens 6819
await "the accounts" "$here/accounts.sh"
"$here/daemon.sh" slurmctld &
await slurmctld scontrol ping
await slurmrestd listens 6820
say ready
# Daemons that are started later become our children too: collect them.
while :; do
    wait -n 2>/dev/null || sleep 0.5
done
