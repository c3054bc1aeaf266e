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

/// Turns of GNU's waiting loop before a thread sleeps: some ten microseconds, in which the next small operation of a
/// decoded token mostly comes (docs/benchmarks.md). With more threads than cores in one process GNU makes it less.
constexpr const char *some_turns = "1000", *no_turns = "0";

/// Whether the ranks of this host leave each of their threads a core.
bool core_for_each_thread() {
  const long cores = std::max(1L, static_cast<long>(std::thread::hardware_concurrency())),
             ranks = launched_ranks_here();
  const char* given = std::getenv("OMP_NUM_THREADS");
  const long threads = given ? std::strtol(given, nullptr, 10) : 0;
  return ranks * (threads > 0 ? threads : std::max(1L, cores / ranks)) <= cores;
}

/// Whether something follows this process that would lose it in a new start. Without /proc nobody knows.
bool followed() {
  const char* preloaded = std::getenv("LD_PRELOAD");
  if (preloaded && std::string_view(preloaded).find("vgpreload") != std::string_view::npos) return true;  // valgrind
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "TracerPid:") return !(status >> word) || word != "0";
  }
  return true;
}

/// The arguments that the kernel was given: those of `main` lack what a loader named on the command line took.
std::vector<std::string> process_arguments() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

}  // namespace

void let_waiting_threads_sleep() {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT") || followed()) return;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> arguments = process_arguments();
  if (error || arguments.empty()) return;
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  setenv("GOMP_SPINCOUNT", core_for_each_thread() ? some_turns : no_turns, 0);
  execv(program.c_str(), pointers.data());  // returns when it fails: then the threads spin
}

}  // namespace lyceum
