# shellcheck shell=bash
# What the batch scripts of this folder share: where the program is, how ranks are launched, how a job ends. They source
# it. What a site may set in the environment of sbatch:
#   LYCEUM               the program (default: the build of this tree, else the installed one)
#   LYCEUM_ENVIRONMENT   a file to source first, with the site's `module load` lines
#   LYCEUM_MPIRUN_FLAGS  more words for mpirun
#   LYCEUM_SRUN_FLAGS    more words for srun
#   LYCEUM_MAX_CRASHES   ends by a lost rank or host that are requeued, one after another (default 3)
[[ -z ${LYCEUM_ENVIRONMENT:-} ]] || . "$LYCEUM_ENVIRONMENT"

say() { echo "lyceum job $SLURM_JOB_ID: $*"; }
usage_error() { say "$*" >&2; exit 2; }

find_program() {
  local here candidate
  here=$(dirname "${BASH_SOURCE[0]}")
  for candidate in "${LYCEUM:-}" "$here/../../build/cpu/apps/lyceum" "$here/../../../bin/lyceum"; do
    [[ ! -x $candidate ]] || { realpath "$candidate"; return; }
  done
  usage_error "no program at ${LYCEUM:-$here/../../build/cpu/apps/lyceum}: build it, or set LYCEUM to its path"
}
program=$(find_program) || exit

# A host that is cut off is noticed within about ten seconds, not after TCP's two hours.
export OMPI_MCA_oob_tcp_keepalive_time=5 OMPI_MCA_oob_tcp_keepalive_intvl=2 OMPI_MCA_oob_tcp_keepalive_probes=3

# mpirun_ranks COMMAND …: mpirun in this allocation. A rank gets the cores of its task, unless the environment says
# otherwise how to bind.
mpirun_ranks() {
  local flags=()
  if [[ -n ${SLURM_CPUS_PER_TASK:-} && -z ${OMPI_MCA_hwloc_base_binding_policy:-} ]]; then
    flags=(--map-by "slot:PE=$SLURM_CPUS_PER_TASK" --bind-to core)
  fi
  # shellcheck disable=SC2206  # words
  flags+=(${LYCEUM_MPIRUN_FLAGS:-})
  exec mpirun "${flags[@]}" "$@"
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
  local launcher=$1 config=${2:-} child
  export LYCEUM_STOP_FILE=${TMPDIR:-/tmp}/lyceum-stop-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}
  trap 'rm -f "$LYCEUM_STOP_FILE"' EXIT
  trap 'echo "asked to stop" >"$LYCEUM_STOP_FILE"' USR1
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

field() { scontrol show job "$SLURM_JOB_ID" | sed -n "s/^ *\(.* \)\?$1=\(.*\)/\2/p"; }

# finish CODE: goes on in another start when that makes sense. 0 is the end; 2 and 3 are a person's to mend; 75 is a
# checkpoint on request; everything else lost a rank or a host, and often a second try succeeds.
finish() {
  local code=$1 crashes
  case $code in
    0) ;;
    2 | 3) [[ -z ${LYCEUM_CHAIN:-} ]] || scancel --state=PENDING --name="$LYCEUM_CHAIN" ;;
    75) note_crashes 0; again ;;
    *)
      sleep 1  # of a job that is being cancelled the state tells so by now
      crashes=$(field Comment | sed -n 's/^lyceum: \([0-9]*\) .*/\1/p')
      ((SECONDS < 3600)) || crashes=0
      crashes=$((${crashes:-0} + 1))
      if ((crashes > ${LYCEUM_MAX_CRASHES:-3})); then
        say "ended with code $code, again: given up; when the cause above is mended: scontrol requeue $SLURM_JOB_ID"
        exit "$code"
      fi
      say "ended with code $code: a rank or a host was lost"
      note_crashes "$crashes"
      again
      ;;
  esac
  exit "$code"
}

# The count outlives a requeue in the job's comment, where squeue -O comment shows it.
note_crashes() { scontrol update JobId="$SLURM_JOB_ID" Comment="lyceum: $1 crashes in a row" || true; }

again() {
  local state
  [[ -z ${LYCEUM_CHAIN:-} ]] || return 0  # the next job of the chain goes on
  state=$(field JobState | cut -d' ' -f1)
  case $state in
    RUNNING | TIMEOUT)
      if scontrol requeue "$SLURM_JOB_ID"; then
        say "requeued"
      else
        say "cannot be requeued here: submit it again, or use chain.sh"
      fi
      ;;
    *) say "$state: not requeued" ;;
  esac
}
