// Measures the cost of waiting threads for `lyceum generate` on shared cores: tokens/s of the quickstart model with
// random weights, if OpenMP's threads wait as lyceum configures them (core/thread_waiting.h), with OpenMP's default,
// and if they spin (OMP_WAIT_POLICY=active). The cases are one process with one thread per core, one process with two
// threads per core, and two processes with one thread per core each:
//   build/cpu/benchmarks/bench_generate
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "config/binding.h"
#include "config/check.h"
#include "core/clock.h"
#include "core/thread_waiting.h"
#include "train/eval/generator.h"
#include "train/setup/run_setup.h"

using namespace lyceum;

namespace {

constexpr double least_seconds = 2;

double tokens_per_second(const std::string& threads) {
  const MpiSession session;
  Config config = load_config(std::vector<std::string>{"--config=" LYCEUM_SOURCE_DIR "/configs/quickstart.ini",
                                                       "--parallel.expert=1", "--run.threads=" + threads})
                      .config;
  resolve(config, session.size());
  const auto setup = set_up(config, session, Reading::generate);
  Transformer model(config, setup->stream, setup->mesh, working_type(config.run), false);
  model.initialize(1);
  const std::vector<std::int32_t> prompt{1};
  std::int64_t made = 0;
  const auto some = [&] {
    generate(model, setup->stream, prompt, {}, config.batch.seq_len, {.tokens = 8},
             [&](std::int32_t) { return ++made; });
  };
  some();  // warm-up
  made = 0;
  const auto start = Clock::now();
  while (seconds_since(start) < least_seconds) some();
  return static_cast<double>(made) / seconds_since(start);
}

std::string own_path() {
  std::array<char, PATH_MAX> path{};
  return {path.data(),
          static_cast<std::size_t>(std::max<ssize_t>(0, readlink("/proc/self/exe", path.data(), path.size())))};
}

/// Runs `processes` copies of this program at the same time and returns the sum of their tokens/s. `who_decides` is
/// "lyceum" or "openmp": how threads wait.
double measure(const std::string& environment, const char* who_decides, unsigned threads, int processes) {
  std::vector<FILE*> outputs;
  for (int i = 0; i < processes; ++i) {
    const std::string command = fmt::format("{} '{}' {} {}", environment, own_path(), who_decides, threads);
    outputs.push_back(popen(command.c_str(), "r"));
  }
  double sum = 0;
  for (FILE* output : outputs) {
    double rate = 0;
    require(output && std::fscanf(output, "%lf", &rate) == 1, "a process of the benchmark failed");
    pclose(output);
    sum += rate;
  }
  return sum;
}

void compare() {
  unsetenv("OMP_WAIT_POLICY");
  unsetenv("GOMP_SPINCOUNT");
  const unsigned cores = std::thread::hardware_concurrency();
  fmt::print("tokens/s on {} cores\n{:<26} {:>10} {:>22} {:>22}\n", cores, "", "lyceum", "OpenMP's own: ratio",
             "active: ratio");
  struct Load {
    unsigned threads;
    int processes;
  };
  for (const Load& load : {Load{cores, 1}, Load{2 * cores, 1}, Load{cores, 2}}) {
    const double mine = measure("", "lyceum", load.threads, load.processes);
    const double own = measure("", "openmp", load.threads, load.processes);
    const double active = measure("OMP_WAIT_POLICY=active", "openmp", load.threads, load.processes);
    fmt::print("{:<26} {:>10.1f} {:>12.1f}: {:>8.2f} {:>12.1f}: {:>8.2f}\n",
               fmt::format("{} x {} threads", load.processes, load.threads), mine, own, mine / own, active,
               mine / active);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 1) {
      compare();
      return 0;
    }
    if (std::string_view(argv[1]) == "lyceum") let_waiting_threads_sleep();
    fmt::print("{}\n", tokens_per_second(argc > 2 ? argv[2] : "1"));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_generate: %s\n", error.what());
    return 1;
  }
}
