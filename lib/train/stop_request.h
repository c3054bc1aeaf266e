#pragma once

namespace lyceum {

/// From now on SIGINT, SIGTERM and SIGUSR1 ask to save and stop; a SIGINT or SIGTERM that follows on a request ends
/// this process at once, with 128 + its number and nothing more written. The first process of the job says a line each
/// time, but not of a first SIGTERM under mpirun: that is how mpirun begins to end a job in which a rank failed. The
/// first thing that `main` does: all other threads must inherit that these signals are not theirs.
void listen_for_stop_requests();

/// Whether such a signal came, or the file exists that the environment names as LYCEUM_STOP_FILE: a batch script's way
/// to ask, since a signal that comes while a launcher starts is lost, or kills it.
bool stop_requested();

/// All work is done, with this exit code: a signal, such as the SIGTERM by which mpirun hurries the last ranks of a
/// job, has no more to stop and only ends the process with it.
void no_more_stop_requests(int exit_code);

}  // namespace lyceum
