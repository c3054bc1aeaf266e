#include "core/thread_waiting.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/launcher.h"

namespace lyceum {

namespace {

/// Values of GOMP_SPINCOUNT: iterations of GNU's waiting loop before a thread sleeps. 1000 take some ten microseconds;
/// the next small operation of decoding usually arrives within that time (docs/benchmarks.md). GNU reduces the number
/// if a process has more threads than cores.
constexpr const char *some_turns = "1000", *no_turns = "0";

/// True if all threads of all ranks on this host can have their own core.
bool core_for_each_thread() {
  const long cores = std::max(1L, static_cast<long>(std::thread::hardware_concurrency())),
             ranks = launched_ranks_here();
  const char* given = std::getenv("OMP_NUM_THREADS");
  const long threads = given ? std::strtol(given, nullptr, 10) : 0;
  return ranks * (threads > 0 ? threads : std::max(1L, cores / ranks)) <= cores;
}

/// True if a debugger or valgrind follows this process and would lose it if it started again; also without /proc.
bool is_traced() {
  const char* preloaded = std::getenv("LD_PRELOAD");
  if (preloaded && std::string_view(preloaded).find("vgpreload") != std::string_view::npos) return true;  // valgrind
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "TracerPid:") return !(status >> word) || word != "0";
  }
  return true;
}

/// Returns the arguments that the kernel received. Those of `main` lack the ones that a loader on the command line
/// removed (`ld.so program …`).
std::vector<std::string> process_arguments() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

}  // namespace

void let_waiting_threads_sleep() {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT") || is_traced()) return;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> arguments = process_arguments();
  if (error || arguments.empty()) return;
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  setenv("GOMP_SPINCOUNT", core_for_each_thread() ? some_turns : no_turns, 0);
  execv(program.c_str(), pointers.data());  // returns only on failure: then threads keep spinning
}

}  // namespace lyceum
