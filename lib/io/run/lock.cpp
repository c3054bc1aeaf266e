#include "io/run/lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <ctime>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <stop_token>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/printable.h"
#include "io/files/atomic_file.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"
#include "io/run/batch_job.h"
#include "io/text/console.h"
#include "io/text/json.h"
#include "parallel/comm/host_name.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

// ---- who holds it -----------------------------------------------------------------------------------------------

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

/// State and start time (clock ticks since boot) of a process; start 0: there is none. [proc(5), stat]
struct ProcessState {
  char state = 0;
  std::uint64_t start = 0;
};
ProcessState process_state(std::int64_t pid) {
  std::ifstream stream(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(stream, text);
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState found;
  fields >> found.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> found.start;
  return found;
}

struct Holder {
  std::string token;  // of one taking of the lock
  std::string host, kernel, pid_namespace, cluster, job;
  std::int64_t pid = 0;
  std::uint64_t pid_start = 0;
  int restarts = 0;
  std::int64_t since = 0;  // seconds since 1970
};

Holder this_process() {
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

std::string text_of(const Holder& holder) {
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

/// A text that cannot be read was cut off by a crash: a holder of which nothing is known.
Holder parse_holder(const std::string& text) {
  Holder holder;
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

/// "job 17 on n3 (process 4711), which took it 3m05s ago"
std::string holder_name(const Holder& holder) {
  if (holder.token.empty()) return "a job that left an unreadable record";
  // As real numbers: `since` may be any integer.
  const double seconds = static_cast<double>(std::time(nullptr)) - static_cast<double>(holder.since);
  const std::string age = human_duration(std::max(seconds, 0.0));
  return fmt::format("{} on {} (process {}), which took it {} ago",
                     holder.job.empty() ? std::string("a run") : fmt::format("job {}", printable(holder.job)),
                     printable(holder.host), holder.pid, age);
}

enum class Life { held, stale, unknown };

Life life_of(const Holder& holder, const Holder& self) {
  if (holder.token.empty()) return Life::unknown;
  if (holder.kernel == self.kernel && holder.pid_namespace == self.pid_namespace && !holder.kernel.empty()) {
    const ProcessState state = process_state(holder.pid);
    const bool there = state.start != 0 && state.start == holder.pid_start && state.state != 'Z' && state.state != 'X';
    return there ? Life::held : Life::stale;
  }
  const bool same_job = !holder.job.empty() && holder.job == self.job && holder.cluster == self.cluster;
  return same_job && holder.restarts < self.restarts ? Life::stale : Life::unknown;
}

// ---- the file -----------------------------------------------------------------------------------------------------

/// The lock file, open. Opening it makes NFS ask the server for its current state.
class LockFile {
 public:
  LockFile(const fs::path& path, bool create) : path_(path) {
    descriptor_ = open_regular(path, O_RDWR | (create ? O_CREAT : 0), Links::refused);
    error_ = descriptor_ < 0 ? errno : 0;
    require(descriptor_ >= 0 || !create || is_gone(), "{}: cannot open: {}", path.string(), system_reason(error_));
  }
  ~LockFile() {
    if (descriptor_ >= 0) close(descriptor_);  // and with it the guard
  }
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  bool is_gone() const { return error_ == ENOENT; }

  /// Keeps others from reading and deciding meanwhile, where the file system has locks; false when the file was removed
  /// before that.
  bool guard() const {
    for (int attempt = 0;; ++attempt) {
      struct flock whole {};
      whole.l_type = F_WRLCK;
      whole.l_whence = SEEK_SET;
      if (fcntl(descriptor_, F_OFD_SETLK, &whole) == 0) break;
      if (errno != EAGAIN && errno != EACCES && errno != EINTR) break;  // no locks here: the time stamps must do
      require(attempt < 1000, "{}: another process keeps it locked: is a process that reads it stopped?",
              path_.string());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    struct stat here {
    }, there{};
    return fstat(descriptor_, &here) == 0 && stat(path_.c_str(), &there) == 0 && here.st_ino == there.st_ino;
  }

  std::string text() const {
    std::string text(4096, '\0');
    const auto got = persist("read", [&] { return pread(descriptor_, text.data(), text.size(), 0); });
    text.resize(static_cast<std::size_t>(got));
    return text;
  }

  void write(const std::string& text) const {
    persist("write", [&] { return ftruncate(descriptor_, 0); });
    for (std::size_t done = 0; done < text.size();) {
      const auto put = persist("write", [&] {
        return pwrite(descriptor_, text.data() + done, text.size() - done, static_cast<off_t>(done));
      });
      require(put > 0, "{}: cannot write: nothing was taken", path_.string());
      done += static_cast<std::size_t>(put);
    }
    persist("write to disk", [&] { return fsync(descriptor_); });
  }

  /// Moves the time stamp, by the clock of the file server.
  void touch() const { futimens(descriptor_, nullptr); }
  std::pair<std::int64_t, std::int64_t> time_stamp() const {
    struct stat status {};
    fstat(descriptor_, &status);
    return {status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
  }

 private:
  /// The result of a system call; throws with the reason when it fails.
  template <class Call>
  std::int64_t persist(const char* action, const Call& call) const {
    const std::int64_t result = uninterrupted(call);
    const int reason = errno;
    require(result >= 0, "{}: cannot {}: {}", path_.string(), action, system_reason(reason));
    return result;
  }

  fs::path path_;
  int descriptor_ = -1, error_ = 0;
};

/// Why a process no longer holds a run's folder.
enum class Loss { none, folder, file, other };

}  // namespace

struct RunLock::Implementation {
  Implementation(fs::path path, Timing timing) : path(std::move(path)), timing(timing) {}

  fs::path path;
  Timing timing;
  Holder self = this_process();
  std::string recovered;
  bool made_directory = false;
  std::atomic<Loss> loss = Loss::none;
  std::mutex mutex;
  std::condition_variable_any wake;
  std::jthread beating;  // last: it uses the others

  void make_directory() { made_directory = make_directories(path.parent_path()) || made_directory; }

  enum class Outcome { taken, held, unknown, gone };

  /// Writes `self` into the file unless another may hold it: then `seen` has its text. An unknown holder must be
  /// watched, and is ignored once it was `judged_stale`. Gone: file or directory was removed meanwhile,
  /// as a holder does that ends.
  Outcome try_take(const std::string& judged_stale, std::string& seen) {
    const LockFile file(path, true);
    if (file.is_gone() || !file.guard()) return Outcome::gone;
    seen = file.text();
    if (!seen.empty()) {
      const Holder holder = parse_holder(seen);
      const Life life = life_of(holder, self);
      if (life == Life::held) return Outcome::held;
      if (life == Life::unknown && seen != judged_stale) return Outcome::unknown;
      recovered = fmt::format("the lock of {} was stale: taken over", holder_name(holder));
    }
    file.write(text_of(self));
    return Outcome::taken;
  }

  enum class Sign { none, life, other };

  /// Of the holder in `seen`: none when its time stamp did not change for `silence`, life as soon as it moves, other
  /// when the file holds another text or is gone.
  Sign watch(const std::string& seen) const {
    const auto start = Clock::now();
    std::optional<std::pair<std::int64_t, std::int64_t>> first;
    while (Clock::now() - start < timing.silence) {
      {
        const LockFile file(path, false);
        if (!file.is_open() || file.text() != seen) return Sign::other;
        const auto stamp = file.time_stamp();
        if (first && *first != stamp) return Sign::life;
        first = stamp;
      }
      std::this_thread::sleep_for(std::min(timing.beat, timing.silence) / 4);
    }
    return Sign::none;
  }

  void take() {
    const auto start = Clock::now();
    std::string seen, stale;
    for (;;) {
      make_directory();  // each time: the holder may remove it when it ends
      const Outcome outcome = try_take(stale, seen);
      if (outcome == Outcome::taken) return;
      if (outcome == Outcome::gone) continue;
      const Sign sign = outcome == Outcome::held ? Sign::life : watch(seen);
      if (sign == Sign::none) stale = seen;
      if (sign != Sign::life) continue;
      require_usage(Clock::now() - start < timing.patience, "{} is in use by {}: set another run.dir, or end that job",
                    path.parent_path().string(), holder_name(parse_holder(seen)));
      std::this_thread::sleep_for(timing.beat / 20);
    }
  }

  void beat(const std::stop_token& stop) {
    std::unique_lock hold(mutex);
    while (!wake.wait_for(hold, stop, timing.beat, [] { return false; }) && !stop.stop_requested()) {
      look(true);
    }
  }

  /// Whether the file still says that this process holds the directory; moves its time stamp. When it cannot be read
  /// now, it may be the next time.
  void look(bool touch) {
    try {
      const LockFile file(path, false);
      if (file.is_gone()) {
        loss = std::filesystem::exists(path.parent_path()) ? Loss::file : Loss::folder;
      } else if (file.is_open() && parse_holder(file.text()).token != self.token) {
        loss = Loss::other;
      }
      if (touch && loss == Loss::none && file.is_open()) file.touch();
    } catch (const std::exception&) {
    }
  }

  void give_back() {
    const LockFile file(path, false);
    if (file.is_open() && file.guard() && parse_holder(file.text()).token == self.token) unlink(path.c_str());
    if (made_directory) rmdir(path.parent_path().c_str());  // unless something was written
  }
};

RunLock::RunLock(const std::filesystem::path& directory, Timing timing)
    : implementation_(new Implementation(directory / "LOCK", timing)) {
  implementation_->take();
  implementation_->beating =
      std::jthread([state = implementation_.get()](const std::stop_token& stop) { state->beat(stop); });
}

RunLock::~RunLock() {
  implementation_->beating = {};  // stops and joins
  try {
    implementation_->give_back();
  } catch (const Error&) {
    // It is found stale later.
  }
}

const std::string& RunLock::recovered() const { return implementation_->recovered; }

void RunLock::require_held(bool read_now) const {
  if (read_now) implementation_->look(false);
  const std::string folder = implementation_->path.parent_path().string();
  switch (implementation_->loss) {
    case Loss::none: return;
    case Loss::folder: fail(ExitCode::failed, "{} was removed: this job ends without further writes", folder);
    case Loss::file:
      fail(ExitCode::failed,
           "LOCK was removed from {}, so another job may write there: this job ends without further "
           "writes",
           folder);
    case Loss::other:
      fail(ExitCode::failed,
           "another job took over {} while this one did not run, or could not reach the file "
           "system: this job ends without further writes",
           folder);
  }
}

}  // namespace lyceum
