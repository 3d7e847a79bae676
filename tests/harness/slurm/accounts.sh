#!/bin/bash
# The cluster, accounts, users and QOS that the tests use. Repeatable.
set -eu
add() { # sacctmgr ends with 1 when there is nothing to do
    local said
    said=$(sacctmgr -i add "$@" 2>&1) || grep -qi 'nothing new\|already exists' <<<"$said" || { echo "$said" >&2; exit 1; }
}
add cluster sluice
add qos high Priority=1000 Preempt=normal
add account ml Description=ml Organization=sluice
add account vision Description=vision Organization=sluice
add user alice Account=ml DefaultAccount=ml
add user alice Account=vision
add user bob Account=ml DefaultAccount=ml
add user carol Account=vision DefaultAccount=vision
add user root Account=ml DefaultAccount=ml
sacctmgr -i modify account ml,vision set QOS=normal,high DefaultQOS=normal >/dev/null
