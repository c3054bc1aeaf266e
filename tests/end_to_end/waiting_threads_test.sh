#!/usr/bin/env bash
# Usage: waiting_threads_test.sh LYCEUM SOURCE_DIR. The program restarts itself once with settings that let OpenMP threads sleep,
# unless the user has set how they wait or a debugger traces it. OpenMP prints the settings of each start.
. "$(dirname "$0")/lib.sh" "$@"
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
export OMP_DISPLAY_ENV=verbose

# starts COUNT POLICY SPIN COMMAND …: expects this number of starts, the last one with these settings.
starts() {
  run "${@:4}"
  equal "starts of ${*:4}" "$(grep -c "OPENMP DISPLAY ENVIRONMENT BEGIN" "$work/err")" "$1"
  equal "policy" "$(grep -Eo "OMP_WAIT_POLICY = '[A-Z]+'" "$work/err" | tail -n 1)" "OMP_WAIT_POLICY = '$2'"
  equal "spins" "$(grep -Eo "GOMP_SPINCOUNT = '[0-9A-Z]+'" "$work/err" | tail -n 1)" "GOMP_SPINCOUNT = '$3'"
}

what=("$lyceum" checkpoint ls "$work/no  such")
starts 2 PASSIVE 1000 "${what[@]}"
code_alone=$code
says err "$work/no  such: no such directory"  # arguments are passed on unchanged
starts 2 PASSIVE 1000 mpirun -n 1 "${what[@]}"
OMP_NUM_THREADS=1000 starts 2 PASSIVE 0 "${what[@]}"  # threads that share cores never spin
OMP_WAIT_POLICY=active starts 1 ACTIVE 30000000000 "${what[@]}"
GOMP_SPINCOUNT=7 starts 1 PASSIVE 7 "${what[@]}"

# Traced by another process, as by a debugger, the program does not restart.
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
