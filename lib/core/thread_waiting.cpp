#include "core/thread_waiting.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

namespace {

/// Turns of GNU's waiting loop while no more threads than cores are there; with more of them it sleeps at once.
constexpr const char* short_spin = "100";

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
  setenv("GOMP_SPINCOUNT", short_spin, 0);
  execv(program.c_str(), pointers.data());  // returns when it fails: then the threads spin
}

}  // namespace lyceum
