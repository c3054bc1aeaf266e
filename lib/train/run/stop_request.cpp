#include "train/run/stop_request.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "core/clock.h"
#include "core/launcher.h"

namespace lyceum {

namespace {

// Signals are sent to the process, so their state is global, too.
std::atomic<bool> stop_signalled = false, launcher_signalled = false;
std::atomic<std::optional<int>> finished_with;
/// Equal signals within this time of each other are one request.
constexpr std::chrono::milliseconds one_request{500};

void print_to_user(const std::string& text) {
  if (launched_rank().value_or(0) != 0) return;
  const std::string line = "lyceum train: " + text + '\n';
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
    // Standard error is closed: there is nothing else to write to.
  }
}

/// True if a process is mpirun or one of its daemons, by the name of its program. Only this user and root can send
/// signals to this process, so the name suffices.
bool is_launcher(pid_t process) {
  if (process == 0) return true;  // the sender is outside of this container
  std::ifstream file("/proc/" + std::to_string(process) + "/comm");
  std::string name;
  std::getline(file, name);
  return std::ranges::any_of(std::array{"mpirun", "mpiexec", "orterun", "orted", "prte"},
                             [&](const char* launcher) { return name.starts_with(launcher); });
}

/// Records a signal. Returns true if it belongs to the same request as the one before: timeout(1), for example, sends a
/// signal to the process and then to the process group.
bool repeats_request(int signal) {
  static int last_signal = 0;
  static Clock::time_point since;
  const auto now = Clock::now();
  if (signal == last_signal && now - since < one_request) return true;
  last_signal = signal;
  since = now;
  return false;
}

std::string name_of_signal(int signal) {
  switch (signal) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    default: return "SIGUSR1";
  }
}

void handle_signal(int signal, pid_t sender) {
  const bool from_launcher = signal == SIGTERM && launched_by_mpirun() && is_launcher(sender);
  if (from_launcher) launcher_signalled = true;
  if (const std::optional<int> code = finished_with) _exit(*code);
  if (repeats_request(signal)) return;
  const std::string name = name_of_signal(signal);
  if (!stop_signalled.exchange(true)) {
    if (from_launcher) return;
    const std::string again = signal == SIGUSR1 ? "SIGINT or SIGTERM exits at once" : "a second signal exits at once";
    print_to_user(name + ": saving a checkpoint after this step, then exiting; " + again);
  } else if (signal != SIGUSR1) {
    if (!from_launcher)
      print_to_user(name + " again: exiting without saving; the same command resumes from the newest checkpoint");
    _exit(128 + signal);
  }
}

bool ignored_at_start(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

/// One thread waits for the signals, and all other threads block them. Otherwise they would interrupt system calls, and
/// not all code, of MPI in particular, handles that.
void listen_for_stop_requests() {
  sigset_t requests;
  sigemptyset(&requests);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    if (!ignored_at_start(signal))
      sigaddset(&requests, signal);  // a shell ignores SIGINT in commands that a script starts with &
  }
  pthread_sigmask(SIG_BLOCK, &requests, nullptr);
  std::thread([requests] {
    for (siginfo_t info{};;) {
      if (sigwaitinfo(&requests, &info) > 0) handle_signal(info.si_signo, info.si_pid);
    }
  }).detach();
}

bool stop_requested() {
  if (stop_signalled) return true;
  const char* file = std::getenv("LYCEUM_STOP_FILE");
  return file && access(file, F_OK) == 0;
}

bool ended_by_launcher() { return launcher_signalled; }

void no_more_stop_requests(int exit_code) { finished_with = exit_code; }

}  // namespace lyceum
