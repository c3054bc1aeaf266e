#!/usr/bin/env bash
# The program that Open MPI runs instead of ssh if there is none, see env.sh.
echo "mpirun: no ssh on $HOSTNAME, so ranks can be started on this host only" >&2
exit 1
