#pragma once

namespace lyceum {

/// Makes OpenMP's threads sleep while they wait for work, as many of them may share a core: spinning, they take the
/// time of those that work. A thread that has a core to itself spins for some microseconds first.
///
/// The OpenMP runtime reads how to wait when it is loaded, before `main`. So unless the environment says it already
/// (OMP_WAIT_POLICY, GOMP_SPINCOUNT), this sets both and starts the program anew, in the same process and with the same
/// arguments. Where that cannot be, without /proc or under a debugger or valgrind, it does nothing. To be called before
/// anything that a new start would lose: threads, open files, MPI.
void let_waiting_threads_sleep();

}  // namespace lyceum
