#pragma once

namespace lyceum {

/// From now on SIGINT, SIGTERM and SIGUSR1 ask to save and stop; a SIGINT or SIGTERM that follows on a request ends
/// this process at once, with 128 + its number and nothing more written, unless it is the same signal within half a
/// second. The first process of the job prints a line
/// each time, unless it is a SIGTERM from mpirun itself: that is how mpirun ends a job in which a rank failed. Must be
/// the first thing that `main` does: all other threads must inherit that these signals are blocked.
void listen_for_stop_requests();

/// Whether such a signal came, or the file exists that the environment names as LYCEUM_STOP_FILE: a batch script's way
/// to ask, since a signal that comes while a launcher starts is lost, or kills it.
bool stop_requested();

/// True once mpirun itself sent a SIGTERM: it kills this process soon.
bool ended_by_launcher();

/// All work is done, with this exit code: a signal, such as the SIGTERM by which mpirun hurries the last ranks of a
/// job, has no more to stop and only ends the process with it.
void no_more_stop_requests(int exit_code);

}  // namespace lyceum
