#include "train/stop_request.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

namespace lyceum {

namespace {

// A handler can reach nothing but static storage.
volatile std::sig_atomic_t asked = 0;
volatile std::sig_atomic_t talks = 1;

void note_request(int) { asked = 1; }

/// mpirun and schedulers kill within seconds, perhaps in the middle of a write: whatever is begun stays unpublished.
void end_at_once(int signal) {
  constexpr std::string_view line =
      "lyceum: ended by SIGTERM, nothing more is written: the same command goes on from the newest checkpoint\n";
  if (talks && write(STDERR_FILENO, line.data(), line.size()) < 0) {
    // Nobody listens any more.
  }
  _exit(128 + signal);
}

bool first_process() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank) == 0;
  }
  return true;
}

}  // namespace

void listen_for_stop_requests() {
  talks = first_process();
  std::signal(SIGUSR1, note_request);
  std::signal(SIGTERM, end_at_once);
}

bool stop_requested() { return asked != 0; }

}  // namespace lyceum
