# shellcheck shell=bash
# Shared by the batch scripts of this folder, which source it: finds the program, launches ranks, ends a job. A site may
# set in the environment of sbatch:
#   LYCEUM               the program (default: the build of this tree, else the installed one)
#   LYCEUM_ENVIRONMENT   a file to source first, with the site's `module load` lines
#   LYCEUM_MPIRUN_FLAGS  additional arguments of mpirun
#   LYCEUM_SRUN_FLAGS    additional arguments of srun
#   LYCEUM_MAX_CRASHES   consecutive failed starts that are requeued (default 3)
[[ -z ${LYCEUM_ENVIRONMENT:-} ]] || . "$LYCEUM_ENVIRONMENT"

say() { echo "lyceum job $SLURM_JOB_ID: $*"; }
usage_error() { say "$*" >&2; drop_chain; exit 2; }
drop_chain() { [[ -z ${LYCEUM_CHAIN:-} ]] || scancel --state=PENDING --name="$LYCEUM_CHAIN"; }

find_program() {
  local here candidate candidates=("${LYCEUM:-}")
  here=$(dirname "${BASH_SOURCE[0]}")
  [[ -n ${LYCEUM:-} ]] || candidates=("$here/../../build/cpu/apps/lyceum" "$here/../../../bin/lyceum")
  for candidate in "${candidates[@]}"; do
    [[ ! -x $candidate ]] || { realpath "$candidate"; return; }
  done
  usage_error "no program at ${candidates[0]}: build it, or set LYCEUM to its path"
}
program=$(find_program) || exit

# A disconnected host is noticed within about ten seconds, not after TCP's two hours.
export OMPI_MCA_oob_tcp_keepalive_time=5 OMPI_MCA_oob_tcp_keepalive_intvl=2 OMPI_MCA_oob_tcp_keepalive_probes=3

# mpirun_ranks COMMAND …: mpirun in this allocation. A rank gets the cores of its task, unless the environment says
# otherwise how to bind.
mpirun_ranks() {
  local flags=() process=$BASHPID
  if [[ -n ${SLURM_CPUS_PER_TASK:-} && -z ${OMPI_MCA_hwloc_base_binding_policy:-} ]]; then
    flags=(--map-by "slot:PE=$SLURM_CPUS_PER_TASK" --bind-to core)
  fi
  # shellcheck disable=SC2206  # words
  flags+=(${LYCEUM_MPIRUN_FLAGS:-})
  end_abandoned "$process" &
  exec mpirun "${flags[@]}" "$@"
}

# end_abandoned PROCESS: kills an mpirun whose srun ended half a minute ago. Open MPI 4 waits forever if a host is lost
# before the daemons of all hosts have reported.
end_abandoned() {
  local mpirun=$1 ended=
  while sleep $((SECONDS < 60 ? 1 : 10)) && kill -0 "$mpirun" 2>/dev/null; do
    if pgrep -P "$mpirun" -x srun >/dev/null; then
      ended=never
    elif [[ $ended == never ]]; then
      ended=$SECONDS
    elif [[ -n $ended ]] && ((SECONDS - ended > 30)); then
      say "mpirun lost a host while it started, and does not end: killed"
      kill -KILL "$mpirun"
    fi
  done
}

# srun_ranks COMMAND …: the same through Slurm's own launcher.
srun_ranks() {
  # shellcheck disable=SC2206
  local flags=(--mpi=pmix --kill-on-bad-exit=1 ${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"} ${LYCEUM_SRUN_FLAGS:-})
  exec srun "${flags[@]}" "$@"
}

# train LAUNCHER CONFIG [--section.key=value …]: a start of the run that CONFIG describes. On SIGUSR1 a file appears that the
# first rank, which runs on this host, looks for after each step: a signal to a launcher that is starting would kill it.
train() {
  local launcher=$1 config=${2:-} stop child
  stop=$(mktemp -d) || exit
  export LYCEUM_STOP_FILE=$stop/asked
  trap 'rm -rf "${LYCEUM_STOP_FILE%/*}"' EXIT
  trap 'echo "asked to stop" >"$LYCEUM_STOP_FILE"' USR1
  [[ -z ${asked:-} ]] || echo "asked to stop" >"$LYCEUM_STOP_FILE"
  trap : TERM  # finish() knows what to do about it
  [[ -r $config ]] || usage_error "no configuration '$config': sbatch train.sbatch CONFIG [--section.key=value ...]"
  shift 2
  say "start $((${SLURM_RESTART_COUNT:-0} + 1)) on $SLURM_JOB_NODELIST, $(date '+%F %T')"
  (trap '' USR1; "$launcher" "$program" train --config "$config" "$@") &
  child=$!
  while kill -0 "$child" 2>/dev/null; do wait "$child"; done
  wait "$child"
  finish $?
}

# field NAME: of this job, from the controller.
field() {
  local job
  for _ in {1..12}; do  # it may be restarting
    job=$(scontrol show job "$SLURM_JOB_ID") && break
    sleep 5
  done
  # The first line that has it: Command and Comment, which come later, may contain anything.
  sed -n "/^ *Command=/d; s/ *$//; /^ *\(.* \)\?$1=/{s///p; q}" <<<"$job"
}

# finish CODE: requeues the job if that makes sense. 0 is the end; 2 and 3 are errors to fix first; 75 is a
# checkpoint on request; after anything else a rank or a host was lost, and a second try often succeeds.
finish() {
  local code=$1 state
  case $code in
    0 | 2 | 3) drop_chain; exit "$code" ;;
    75) ;;
    *) say "ended with code $code, see above" ;;
  esac
  sleep 1  # by now the state of a job that is being cancelled says so
  state=$(field JobState | cut -d' ' -f1)
  if [[ $state != RUNNING ]]; then
    # The time limit is a reason to requeue; cancellation is not; preemption requeues by itself.
    if [[ $(field Reason | cut -d' ' -f1) == TimeLimit ]]; then again; else say "$state: not requeued"; fi
  elif fruitless "$code"; then
    say "failed repeatedly: giving up; when the cause above is fixed: scontrol requeue $SLURM_JOB_ID"
  else
    again
  fi
  exit "$code"
}

# fruitless CODE: whether this start was the last of too many that failed one after another. One failed that ended by itself
# within an hour, or was asked to stop within a minute, as it is each time where the limit is too short. The count outlives a
# requeue behind what the user wrote into the job's comment: squeue -O comment shows it.
fruitless() {
  local count comment users
  comment=$(field Comment)
  users=$(sed 's/\(; \)\?lyceum: [0-9]* failed starts$//' <<<"$comment")
  count=$(sed -n 's/.*lyceum: \([0-9]*\) failed starts$/\1/p' <<<"$comment")
  if ((SECONDS < ($1 == 75 ? 60 : 3600))); then count=$((${count:-0} + 1)); else count=0; fi
  ((count <= ${LYCEUM_MAX_CRASHES:-3})) || return 0
  scontrol update JobId="$SLURM_JOB_ID" Comment="${users:+$users; }lyceum: $count failed starts" || true
  return 1
}

again() {
  [[ -z ${LYCEUM_CHAIN:-} ]] || return 0  # the next job of the chain resumes
  if scontrol requeue "$SLURM_JOB_ID"; then
    say "requeued"
  else
    say "cannot be requeued here: submit it again, or use chain.sh"
  fi
}
