# shellcheck shell=sh
# Settings of Open MPI for more ranks than cores and for root, and an mpirun that saves a checkpoint on Ctrl-C. Source it
# before mpirun:
#   . scripts/mpi-env.sh && mpirun -n 8 build/cpu/apps/lyceum train --config configs/quickstart.ini
# Containers and CI run as root.
export OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# More ranks than cores: place them anywhere, and let a waiting rank give its core to one that works.
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1
# Containers often forbid reading another process's memory; two copies through shared memory always work.
export OMPI_MCA_btl_vader_single_copy_mechanism=none

# In interactive shells: Open MPI's mpirun, when interrupted, kills the ranks within two seconds and ends with 1. In front of it the
# first Ctrl-C, SIGTERM or hangup becomes SIGUSR1, which it passes on: `lyceum train` saves a checkpoint and ends with 75. A
# second one reaches mpirun itself. Scripts keep the plain mpirun, whose process they may know by $!.
# shellcheck disable=SC2086,SC2317  # $job is a number or nothing; traps call stop
case $- in *i*)
  mpirun() (
    case " $* " in *" train "*) ;; *) exec mpirun "$@" ;; esac
    job='' asked='' forced='' came='' code=0
    stop() {  # the exit code when it is not the first time
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
    while :; do  # wait also returns when a signal came
      came=''
      wait $job && code=0 || code=$?
      [ -n "$came" ] || break
    done
    exit "${forced:-$code}"
  )
  ;;
esac
