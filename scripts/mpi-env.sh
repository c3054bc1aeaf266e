# shellcheck shell=sh
# Settings of Open MPI for more ranks than cores and for root, and an mpirun that saves a checkpoint on Ctrl-C. Source it
# before mpirun:
#   . scripts/mpi-env.sh && mpirun -n 8 build/cpu/apps/lyceum train --config configs/quickstart.ini
# Containers and CI run as root.
export OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# For more ranks than cores: place ranks on any core, and let a waiting rank yield its core.
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1
# Containers often forbid reading the memory of another process. Two copies through shared memory always work.
export OMPI_MCA_btl_vader_single_copy_mechanism=none

# In interactive shells, this function replaces mpirun. Open MPI's mpirun kills the ranks within two seconds of an interrupt,
# and ends with 1. For the first Ctrl-C, SIGTERM or hangup, the function sends SIGUSR1 instead: mpirun forwards it, and
# `lyceum train` saves a checkpoint and ends with 75. A second one reaches mpirun itself. Scripts use the original mpirun, since
# they may need its process id in $!.
# shellcheck disable=SC2086,SC2317  # $job is a number or nothing; traps call stop
case $- in *i*)
  mpirun() (
    case " $* " in *" train "*) ;; *) exec mpirun "$@" ;; esac
    job='' asked='' forced='' came='' code=0
    stop() {  # the exit code if this is the second request
      came=1
      if [ -z "$asked" ]; then
        asked=1
        kill -USR1 $job 2>/dev/null || :
      else
        forced=$1
        kill -TERM $job 2>/dev/null || :
      fi
    }
    trap 'stop 130' INT
    trap 'stop 143' TERM
    trap 'stop 129' HUP
    trap 'came=1; kill -USR1 $job 2>/dev/null || :' USR1
    setsid mpirun "$@" <&0 &  # a separate session: keys typed on the terminal reach only this shell
    job=$!
    [ -z "$asked" ] || kill -TERM $job
    while :; do  # wait also returns when a signal is received
      came=''
      wait $job && code=0 || code=$?
      [ -n "$came" ] || break
    done
    exit "${forced:-$code}"
  )
  ;;
esac
