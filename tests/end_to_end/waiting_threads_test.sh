#!/usr/bin/env bash
# Usage: waiting_threads_test.sh LYCEUM SOURCE_DIR. The program starts anew once with what lets OpenMP's threads sleep,
# unless the user has said how they wait or a debugger follows it. OpenMP itself tells what each start was told.
. "$(dirname "$0")/lib.sh" "$@"
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
export OMP_DISPLAY_ENV=verbose

# starts COUNT POLICY SPIN COMMAND …: so many starts, the last with these settings.
starts() {
  run "${@:4}"
  equal "starts of ${*:4}" "$(grep -c "OPENMP DISPLAY ENVIRONMENT BEGIN" "$work/err")" "$1"
  equal "policy" "$(grep -Eo "OMP_WAIT_POLICY = '[A-Z]+'" "$work/err" | tail -n 1)" "OMP_WAIT_POLICY = '$2'"
  equal "spins" "$(grep -Eo "GOMP_SPINCOUNT = '[0-9A-Z]+'" "$work/err" | tail -n 1)" "GOMP_SPINCOUNT = '$3'"
}

what=("$lyceum" checkpoint ls "$work/no  such")
starts 2 PASSIVE 1000 "${what[@]}"
code_alone=$code
says err "$work/no  such: no such directory"  # arguments arrive as they were
starts 2 PASSIVE 1000 mpirun -n 1 "${what[@]}"
OMP_NUM_THREADS=1000 starts 2 PASSIVE 0 "${what[@]}"  # threads that share cores do not spin at all
OMP_WAIT_POLICY=active starts 1 ACTIVE 30000000000 "${what[@]}"
GOMP_SPINCOUNT=7 starts 1 PASSIVE 7 "${what[@]}"

# Followed by another process, as under a debugger, it stays what was started.
starts 1 PASSIVE 300000 python3 - "${what[@]}" <<'END'
import ctypes, os, sys
child = os.fork()
if child == 0:
    ctypes.CDLL(None).ptrace(0, 0, None, None)  # PTRACE_TRACEME
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
    ctypes.CDLL(None).ptrace(7, child, None, None)  # PTRACE_CONT
END
equal "exit code when it is followed" "$code" "$code_alone"
