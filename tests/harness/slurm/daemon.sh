#!/bin/bash
# Run one daemon of the Slurm side in the foreground: mariadb, slurmdbd, slurmctld or slurmrestd.
set -eu
as() { # as <user> <command…>
    local user=$1
    shift
    exec setpriv --reuid="$user" --regid="$user" --init-groups "$@"
}
exec >>"/var/log/slurm/$1.out" 2>&1
case $1 in
mariadb)
    exec mariadbd --user=mysql --bind-address=127.0.0.1 --skip-log-bin \
        --innodb-snapshot-isolation=OFF --innodb-buffer-pool-size=128M \
        --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0
    ;;
slurmdbd) as slurm slurmdbd -D ;;
slurmctld) as slurm slurmctld -D -i ;;
slurmrestd)
    # It refuses to run as root or as SlurmUser, and needs unshare(2) unless told otherwise.
    export SLURM_JWT=daemon SLURMRESTD_SECURITY=disable_unshare_sysv,disable_unshare_files
    as slurmrest slurmrestd -a rest_auth/jwt -s slurmctld,slurmdbd,util 0.0.0.0:6820
    ;;
*)
    echo "no such daemon: $1" >&2
    exit 2
    ;;
esac
