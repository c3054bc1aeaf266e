# shellcheck shell=bash
# Functions shared by the batch scripts of this folder: find the program, launch ranks, end or requeue a job. A site may
# set these variables in the environment of sbatch:
#   LYCEUM               the program (default: the build of this tree, else the installed one)
#   LYCEUM_ENVIRONMENT   a file to source first, with the site's `module load` lines
#   LYCEUM_MPIRUN_FLAGS  additional arguments of mpirun
#   LYCEUM_SRUN_FLAGS    additional arguments of srun
#   LYCEUM_MAX_CRASHES   consecutive failed starts that are requeued (default 3)
[[ -z ${LYCEUM_ENVIRONMENT:-} ]] || . "$LYCEUM_ENVIRONMENT"

# The number of this job. Slurm's own number of a task is ambiguous: that of one task is also the number of the whole array.
this_job=$SLURM_JOB_ID
[[ -z ${SLURM_ARRAY_TASK_ID:-} ]] || this_job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

say() { echo "lyceum job $this_job: $*"; }
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

# Every rank sees all GPUs of its host, of which the program assigns it one: two processes that see only their own GPU cannot
# exchange data between GPUs directly, and the daemon of mpirun, which is one task, would see only one. Both srun and mpirun,
# which uses srun, read this variable.
if [[ -n ${SLURM_GPUS_ON_NODE:-} ]]; then export SLURM_GPU_BIND=${SLURM_GPU_BIND:-none}; fi

# mpirun_ranks COMMAND …: runs mpirun in this allocation. A rank is bound to the cores of its task, unless the environment
# sets another binding policy.
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
      say "mpirun lost a host during startup and did not end: killed"
      kill -KILL "$mpirun"
    fi
  done
}

# srun_ranks COMMAND …: the same with srun.
srun_ranks() {
  # shellcheck disable=SC2206
  local flags=(--mpi=pmix --kill-on-bad-exit=1 ${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"} ${LYCEUM_SRUN_FLAGS:-})
  exec srun "${flags[@]}" "$@"
}

# train LAUNCHER CONFIG [--section.key=value …]: starts the run that CONFIG describes. On SIGUSR1 it creates a file that the
# first rank, which runs on this host, looks for after each step. A signal would kill a launcher that is starting.
train() {
  local launcher=$1 config=${2:-} stop child
  stop=$(mktemp -d) || exit
  export LYCEUM_STOP_FILE=$stop/asked
  trap 'rm -rf "${LYCEUM_STOP_FILE%/*}"' EXIT
  trap 'echo "asked to stop" >"$LYCEUM_STOP_FILE"' USR1
  [[ -z ${asked:-} ]] || echo "asked to stop" >"$LYCEUM_STOP_FILE"
  trap : TERM  # the ranks end, and finish() decides
  [[ -r $config ]] || usage_error "no configuration '$config': sbatch train.sbatch CONFIG [--section.key=value ...]"
  shift 2
  say "start $((${SLURM_RESTART_COUNT:-0} + 1)) on $SLURM_JOB_NODELIST, $(date '+%F %T')"
  (trap '' USR1; "$launcher" "$program" train --config "$config" "$@") &
  child=$!
  while kill -0 "$child" 2>/dev/null; do wait "$child"; done
  wait "$child"
  finish $?
}

# field NAME: prints a field of this job, as the controller shows it.
field() {
  local shown
  for _ in {1..12}; do  # the controller may be restarting
    shown=$(scontrol show job "$this_job") && break
    sleep 5
  done
  # The first line with the field, since Command and Comment, which follow, may contain any text.
  sed -n "/^ *Command=/d; s/ *$//; /^ *\(.* \)\?$1=/{s///p; q}" <<<"$shown"
}

# finish CODE: calls run_ended CODE if the script has such a function, then requeues the job if it should continue. 0: the run is
# complete. 2 and 3: errors that must be fixed first. 75: it stopped on request after a checkpoint. Other codes: a rank or a host was
# lost, and another start often succeeds.
finish() {
  local code=$1 state
  ! declare -F run_ended >/dev/null || run_ended "$code"
  case $code in
    0 | 2 | 3) drop_chain; exit "$code" ;;
    75) ;;
    *) say "ended with code $code, see above" ;;
  esac
  sleep 1  # until the state of a job that is being cancelled has changed
  state=$(field JobState | cut -d' ' -f1)
  if [[ $state != RUNNING ]]; then
    # The time limit is a reason to requeue; cancellation is not; preemption requeues by itself.
    if [[ $(field Reason | cut -d' ' -f1) == TimeLimit ]]; then again; else say "$state: not requeued"; fi
  elif fruitless "$code"; then
    say "failed repeatedly: giving up; when the cause above is fixed: scontrol requeue $this_job"
  else
    again
  fi
  exit "$code"
}

# fruitless CODE: succeeds if too many consecutive starts have failed. A start has failed if it ended by itself within an hour,
# or was asked to stop within a minute, as always happens if the time limit is too short. The number of failed starts is kept
# across requeues at the end of the job's comment, which squeue -O comment shows.
fruitless() {
  local count comment users
  comment=$(field Comment)
  users=$(sed 's/\(; \)\?lyceum: [0-9]* failed starts$//' <<<"$comment")
  count=$(sed -n 's/.*lyceum: \([0-9]*\) failed starts$/\1/p' <<<"$comment")
  if ((SECONDS < ($1 == 75 ? 60 : 3600))); then count=$((${count:-0} + 1)); else count=0; fi
  ((count <= ${LYCEUM_MAX_CRASHES:-3})) || return 0
  scontrol update JobId="$this_job" Comment="${users:+$users; }lyceum: $count failed starts" || true
  return 1
}

again() {
  [[ -z ${LYCEUM_CHAIN:-} ]] || return 0  # the next job of the chain resumes
  if scontrol requeue "$this_job"; then
    say "requeued"
  else
    say "cannot be requeued here: submit it again, or use chain.sh"
  fi
}
