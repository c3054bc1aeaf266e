#pragma once

namespace lyceum {

/// Makes OpenMP threads sleep instead of spin while they wait for work, since several of them may share a core. If
/// every thread has its own core, it spins for about ten microseconds first.
///
/// The OpenMP runtime reads these settings when it is loaded, before `main`. So this function sets OMP_WAIT_POLICY and
/// GOMP_SPINCOUNT and executes the program again, in the same process with the same arguments. It does nothing if one
/// of them is set already, without /proc, or under a debugger or valgrind. Call it first in `main`: threads, open files
/// and MPI would be lost.
void let_waiting_threads_sleep();

}  // namespace lyceum
