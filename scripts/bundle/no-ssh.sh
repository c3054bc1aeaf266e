#!/usr/bin/env bash
# The agent that env.sh sets for Open MPI if there is no ssh.
echo "mpirun: no ssh on $HOSTNAME, so ranks can be started on this host only" >&2
exit 1
