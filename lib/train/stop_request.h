#pragma once

namespace lyceum {

/// From now on SIGUSR1 (what mpirun forwards and a scheduler sends before a limit) is a request to save and stop, as
/// often as it comes, and SIGTERM ends this process at once: the first process of the job says a line, nothing is
/// written any more. The first thing that `main` does, so that no signal comes too early.
void listen_for_stop_requests();

/// Whether this process got SIGUSR1.
bool stop_requested();

}  // namespace lyceum
