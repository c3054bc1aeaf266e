#include "io/run/lock_holder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>

#include "core/printable.h"
#include "io/run/batch_job.h"
#include "io/text/console.h"
#include "io/text/json.h"
#include "parallel/comm/host_name.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

std::string first_word_of(const char* file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

std::string link_target(const char* link) {
  std::error_code error;
  return fs::read_symlink(link, error).string();
}

/// State and start time (clock ticks since boot) of a process. `start` is 0 if there is no such process. [proc(5),
/// stat]
struct ProcessState {
  char state = 0;
  std::uint64_t start = 0;
};
ProcessState process_state(std::int64_t pid) {
  std::ifstream stream(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(stream, text);
  const std::size_t name_end = text.rfind(')');  // the process's name may contain any characters
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState found;
  fields >> found.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> found.start;
  return found;
}

}  // namespace

LockHolder this_process() {
  std::random_device random;
  const BatchJob job = batch_job().value_or(BatchJob{});
  return {.token = fmt::format("{:08x}{:08x}", random(), random()),
          .host = host_name(),
          .kernel = first_word_of("/proc/sys/kernel/random/boot_id"),
          .pid_namespace = link_target("/proc/self/ns/pid"),
          .cluster = job.cluster,
          .job = job.id,
          .pid = getpid(),
          .pid_start = process_state(getpid()).start,
          .restarts = job.restarts,
          .since = std::time(nullptr)};
}

std::string text_of(const LockHolder& holder) {
  return json_text(
             OrderedJson{{"token", holder.token},
                         {"host", holder.host},
                         {"pid", holder.pid},
                         {"job", holder.job},
                         {"restarts", holder.restarts},
                         {"since", holder.since},
                         {"since_utc", fmt::format("{:%F %T}", fmt::gmtime(static_cast<std::time_t>(holder.since)))},
                         {"cluster", holder.cluster},
                         {"kernel", holder.kernel},
                         {"pid_namespace", holder.pid_namespace},
                         {"pid_start", holder.pid_start}},
             2) +
         '\n';
}

LockHolder parse_holder(const std::string& text) {
  LockHolder holder;
  const OrderedJson json = parse_json<OrderedJson>(text, /*allow_exceptions=*/false);
  if (!json.is_object()) return holder;
  try {
    holder = {.token = json.at("token"),
              .host = json.at("host"),
              .kernel = json.at("kernel"),
              .pid_namespace = json.at("pid_namespace"),
              .cluster = json.at("cluster"),
              .job = json.at("job"),
              .pid = Exact(json.at("pid")),
              .pid_start = Exact(json.at("pid_start")),
              .restarts = Exact(json.at("restarts")),
              .since = Exact(json.at("since"))};
  } catch (const std::exception&) {
    return {};
  }
  return holder;
}

std::string holder_name(const LockHolder& holder) {
  if (holder.token.empty()) return "a job that left an unreadable record";
  // Subtracts floating-point numbers, since `since` may be any integer.
  const double seconds = static_cast<double>(std::time(nullptr)) - static_cast<double>(holder.since);
  const std::string age = human_duration(std::max(seconds, 0.0));
  return fmt::format("{} on {} (process {}), which took it {} ago",
                     holder.job.empty() ? std::string("a run") : fmt::format("job {}", printable(holder.job)),
                     printable(holder.host), holder.pid, age);
}

Life life_of(const LockHolder& holder, const LockHolder& self) {
  if (holder.token.empty()) return Life::unknown;
  if (holder.kernel == self.kernel && holder.pid_namespace == self.pid_namespace && !holder.kernel.empty()) {
    const ProcessState state = process_state(holder.pid);
    const bool there = state.start != 0 && state.start == holder.pid_start && state.state != 'Z' && state.state != 'X';
    return there ? Life::held : Life::stale;
  }
  const bool same_job = !holder.job.empty() && holder.job == self.job && holder.cluster == self.cluster;
  return same_job && holder.restarts < self.restarts ? Life::stale : Life::unknown;
}

}  // namespace lyceum
