#pragma once

namespace lyceum {

/// Starts a thread that handles SIGINT, SIGTERM and SIGUSR1, except those that the process ignored at its start. Must
/// be the first call of `main`, since all other threads must inherit that these signals are blocked.
///   1. The first signal requests that the run saves a checkpoint and stops, see stop_requested().
///   2. A SIGINT or SIGTERM after that ends this process at once with exit code 128 + its number, and nothing is saved.
///      The same signal within half a second is taken for a repetition and ignored.
/// The first process of the job prints a line for each. It prints none for a SIGTERM from mpirun itself, by which
/// mpirun ends a job in which a rank has failed.
void listen_for_stop_requests();

/// True if such a signal was received, or if the file exists that the environment variable LYCEUM_STOP_FILE names.
/// Batch scripts use the file: a signal that arrives while the launcher starts is lost or kills the launcher.
bool stop_requested();

/// True once mpirun itself has sent a SIGTERM. It kills this process soon afterwards.
bool ended_by_launcher();

/// Call when all work is done. From now on a signal, such as the SIGTERM that mpirun sends to the last ranks of a job,
/// only ends the process with `exit_code`.
void no_more_stop_requests(int exit_code);

}  // namespace lyceum
