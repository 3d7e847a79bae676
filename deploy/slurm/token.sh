#!/bin/bash
# Makes a token for Sluice and stores it in the cluster. Run it where both scontrol and kubectl work,
# as root or SlurmUser, and again well before the token ends (from cron, say): Sluice reads the file
# anew when it changes, without a restart.
#
#   token.sh            a token of the user slurm, for 30 days
#   token.sh slurm 86400
#
# The user must be SlurmUser (or root): only theirs may submit for the users of other namespaces.
# It is also the value of slurm.user_name in sluice.yaml.
set -euo pipefail
user=${1:-slurm} lifespan_seconds=${2:-2592000}

token=$(scontrol token username="$user" lifespan="$lifespan_seconds")
token=${token#SLURM_JWT=}
if [[ -z $token ]]; then
    echo "scontrol gave no token: is AuthAltTypes=auth/jwt set, and are you root or SlurmUser?" >&2
    exit 1
fi
# Through a pipe, so that the token is in no argument list.
printf %s "$token" |
    kubectl --namespace sluice-system create secret generic sluice-slurm-token \
        --from-file=slurm-token=/dev/stdin --dry-run=client --output yaml |
    kubectl apply --server-side --force-conflicts --filename -
