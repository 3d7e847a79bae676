#!/bin/bash
# Makes a Slurm account for the namespaces of a team, and the Slurm user that their jobs run as. Run
# it where sacctmgr works, as a Slurm administrator. Repeatable.
#
#   accounts.sh ml alice            account ml; user alice in it
#   accounts.sh ml alice normal,high  … and the QOS that its gangs may name, the first by default
#
# The user must exist on the Slurm controller (`id alice`): slurmctld looks up its uid and groups.
# Give it no login if it stands for a namespace only. It can be neither root nor SlurmUser.
set -euo pipefail
if (($# < 2 || $# > 3)); then
    echo "usage: $0 ACCOUNT USER [QOS,QOS…]" >&2
    exit 2
fi
account=$1 user=$2 qos=${3:-}

if [[ $(id -u "$user" 2>/dev/null || echo missing) == @(missing|0) ]]; then
    echo "user '$user' does not exist here, or is root: try useradd --system --no-create-home $user" >&2
    exit 1
fi

known() { # sacctmgr ends with 1 when it is told to add what is there
    [[ $(sacctmgr --noheader --parsable2 show "$@") ]]
}
known account where name="$account" ||
    sacctmgr --immediate add account "$account" Description="$account" Organization=sluice
known assoc where account="$account" user="$user" ||
    sacctmgr --immediate add user "$user" Account="$account"
if [[ $qos ]]; then
    sacctmgr --immediate modify account "$account" set QOS="$qos" DefaultQOS="${qos%%,*}"
fi
sacctmgr show assoc where account="$account" format=cluster,account,user,qos,defaultqos
