#include "train/stop_request.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace lyceum {

namespace {

// A handler can reach nothing but static storage.
volatile sig_atomic_t talks = 1;

/// The request stays pending, in no thread's way: system calls that it would interrupt, in threads of MPI above all,
/// are not all written for that.
sigset_t request() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return set;
}

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
  const sigset_t blocked = request();
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGTERM, end_at_once);
}

bool stop_requested() {
  sigset_t pending;
  if (sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 1) return true;
  const char* file = std::getenv("LYCEUM_STOP_FILE");
  return file && access(file, F_OK) == 0;
}

void no_more_stop_requests() { signal(SIGTERM, SIG_IGN); }

}  // namespace lyceum
