# shellcheck shell=bash
# Functions shared by the Slurm tests: those of lib.sh of the end-to-end tests, and a lab, a real Slurm with four nodes on this
# machine. Source this file with the test's own arguments: LYCEUM SOURCE_DIR. Defines the functions below and $lab, the folder
# of the lab, which is stopped when the test ends.
#
# A node is a slurmd with its own namespaces for host name, processes and shared memory. So ranks of two nodes share only the
# file system and the loopback network, and all processes of a node can be killed together.
((EUID == 0)) || exec unshare --user --map-root-user bash "$0" "$@"
. "$(dirname "${BASH_SOURCE[0]}")/../end_to_end/lib.sh" "$@"
trap 'stop_lab; stop_job; rm -rf "$work"' EXIT
lab=$work/lab
export SLURM_CONF=$lab/slurm.conf LYCEUM=$lyceum SBATCH_OUTPUT=$work/%j.log
# Two labs at the same time have nodes, processes and jobs of the same names, so they need separate folders for temporary files.
export TMPDIR=$lab/tmp OMPI_MCA_orte_tmpdir_base=$lab/tmp
nodes=(n1 n2 n3 n4)
know_peaks "${nodes[@]}"
poll=0.5  # longer, since each query of Slurm starts a program and wakes its daemons
scripts=$source/scripts/slurm

free_ports() {
  python3 -c '
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in held: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in held))' "$1"
}

write_slurm_conf() {
  local ports node i=1
  read -ra ports <<<"$(free_ports 5)"
  cat >"$SLURM_CONF" <<END
ClusterName=lab
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
AuthInfo=socket=$lab/munge.sock,cred_expire=5
SlurmctldPidFile=$lab/slurmctld.pid
SlurmdPidFile=$lab/slurmd-%n.pid
SlurmctldLogFile=$lab/slurmctld.log
SlurmdLogFile=$lab/slurmd-%n.log
StateSaveLocation=$lab/state
SlurmdSpoolDir=$lab/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmix
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=5
SlurmdTimeout=10
Epilog=$lab/epilog
PartitionName=low Nodes=n[1-4] Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=20
PartitionName=high Nodes=n[1-4] MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
END
  for node in "${nodes[@]}"; do
    echo "NodeName=$node NodeAddr=127.0.0.1 Port=${ports[i++]} CPUs=4 RealMemory=4000" >>"$SLURM_CONF"
  done
}

# Kills an srun that outlives its mpirun; it would cancel the step of the job's next start. Clusters use cgroups for this,
# which a container may lack.
write_epilog() {
  cat >"$lab/epilog" <<'END'
#!/bin/bash
for process in $(pgrep -x srun); do
  grep -zqx "SLURM_JOB_ID=$SLURM_JOB_ID" "/proc/$process/environ" && kill -KILL "$process"
done
exit 0
END
  chmod +x "$lab/epilog"
}

# boot NODE: starts a node.
boot() {
  local node=$1 folder=$lab/$1
  rm -rf "$folder"
  mkdir -p "$folder/etc" "$folder/pmix"
  ln -s "$SLURM_CONF" "$folder/etc/slurm.conf"
  # One PMIx folder per node. The ring collective, since the default one sometimes crashes in MPI_Init of this version.
  printf 'PMIxCliTmpDirBase=%s\nPMIxCollFence=ring\n' "$folder/pmix" >"$folder/etc/mpi.conf"
  SLURM_CONF=$folder/etc/slurm.conf setsid unshare --uts --ipc --pid --mount --propagation private --fork --kill-child \
    --mount-proc bash -c "
      hostname $node
      mount -t tmpfs tmpfs /dev/shm
      slurmd -D -N $node &
      while :; do wait -n; sleep 0.2; done" </dev/null >"$folder/out" 2>&1 &
  echo $! >"$lab/$node.pid"
  disown
}

# crash NODE: kills all processes of a node.
crash() { kill -KILL "$(cat "$lab/$1.pid")"; }

idle_nodes() { sinfo -h -p low -t idle -o %D 2>/dev/null; }
all_idle() { [[ $(idle_nodes) == "${#nodes[@]}" ]]; }

start_lab() {
  local node
  mkdir -p "$lab/state" "$TMPDIR"
  chmod 755 "$work" "$lab"
  write_slurm_conf
  write_epilog
  head -c 1024 /dev/urandom >"$lab/munge.key"
  chmod 400 "$lab/munge.key"
  munged --key-file="$lab/munge.key" --socket="$lab/munge.sock" --pid-file="$lab/munged.pid" \
    --log-file="$lab/munged.log" --seed-file="$lab/munged.seed"
  slurmctld -i -c
  for node in "${nodes[@]}"; do boot "$node"; done
  wait_for 30 all_idle || { tail -n 5 "$lab"/*.log "$lab"/n*/out >&2; fail "Slurm does not start"; }
}

stop_lab() {
  local file
  [[ -e $SLURM_CONF ]] || return 0
  for file in "$lab"/{munged,slurmctld,n[1-4]}.pid; do kill -KILL "$(cat "$file")" 2>/dev/null || true; done
}

# state JOB: prints PENDING, RUNNING, COMPLETED, FAILED …
state() { scontrol show job "$1" 2>/dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }
restarts() { scontrol show job "$1" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p'; }
in_state() { [[ $(state "$1") == "$2" ]]; }
# over JOB: succeeds if the job will not run any more.
over() { [[ $(state "$1") != @(PENDING|CONFIGURING|RUNNING|COMPLETING|SUSPENDED|REQUEUED|PREEMPTED) ]]; }

# submit ARGUMENTS OF sbatch: submits a job and sets $id.
submit() {
  id=$(sbatch --parsable "$@" 2>"$work/err") || fail "sbatch $*"
  : >"$work/$id.log"
}

# log_says JOB PATTERN: succeeds if a line of the job's log matches.
log_says() { grep -Eq -- "$2" "$work/$1.log"; }
expect_log() { log_says "$@" || fail_job "$1" "its log has no line like: $2"; }

fail_job() {
  { echo "--- log of job $1:"; tail -n 40 "$work/$1.log"; scontrol show job "$1"; } >&2
  fail "job $1: $2"
}

# complete SECONDS JOB: fails unless the job completes within this time.
complete() { ends_as COMPLETED "$@"; }
# ends_as STATE SECONDS JOB: fails unless the job ends within this time, in this state.
ends_as() {
  wait_for "$2" over "$3" || fail_job "$3" "not over after $2 s: $(state "$3")"
  in_state "$3" "$1" || fail_job "$3" "ended as $(state "$3"), not $1"
}

# ask_to_stop JOB: sends the signal that Slurm sends before the time limit.
ask_to_stop() { scancel --batch --signal=USR1 "$1"; }

# steps_done RUN: prints the number of steps in its metrics.
steps_done() { [[ -f $work/$1/metrics.jsonl ]] && wc -l <"$work/$1/metrics.jsonl" || echo 0; }
beyond() { (($(steps_done "$1") >= $2)); }
# reach JOB RUN STEP: waits until the run has this many steps.
reach() { wait_for 60 beyond "$2" "$3" || fail_job "$1" "$2 does not reach step $3"; }

# on_node NODE NAME: prints the processes of this name on a node.
on_node() { pgrep --ns "$(pgrep -P "$(cat "$lab/$1.pid")")" --nslist pid -x "$2"; }
# ranks_of RUN: prints the processes of a run's ranks, on all nodes.
ranks_of() { pgrep -f -- "^$lyceum train .*--run.dir=$work/$1( |\$)"; }
