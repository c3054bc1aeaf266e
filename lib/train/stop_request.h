#pragma once

namespace lyceum {

/// From now on SIGUSR1 (what mpirun forwards and a scheduler sends before a limit) is a request to save and stop, as
/// often as it comes, and SIGTERM ends this process at once: the first process of the job says a line, nothing is
/// written any more. The first thing that `main` does: the threads that MPI starts must inherit it.
void listen_for_stop_requests();

/// Whether this process got SIGUSR1, or the file exists that the environment names as LYCEUM_STOP_FILE: a batch
/// script's way to ask, since a signal that comes while a launcher starts is lost, or kills it.
bool stop_requested();

/// All work is done: SIGTERM, by which mpirun hurries the last ranks of a job that ended with another code than 0, has
/// nothing to end any more.
void no_more_stop_requests();

}  // namespace lyceum
