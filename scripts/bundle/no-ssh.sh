#!/usr/bin/env bash
# What env.sh names to Open MPI where there is no ssh.
echo "mpirun: no ssh on $HOSTNAME, so ranks can be started on this host only" >&2
exit 1
