#include "io/run/lock.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/run/lock_file.h"
#include "io/run/lock_holder.h"

namespace lyceum {

namespace {

/// Why this process no longer holds the run's directory: it was removed, its lock file was removed, or another job has
/// taken it.
enum class Loss { none, folder, file, other };

}  // namespace

struct RunLock::Implementation {
  Implementation(std::filesystem::path path, Timing timing) : path(std::move(path)), timing(timing) {}

  std::filesystem::path path;
  Timing timing;
  LockHolder self = this_process();
  std::string recovered;
  std::filesystem::path made_from;  // the first of the directories that this object made; empty if it made none
  std::atomic<Loss> loss = Loss::none;
  std::mutex mutex;
  std::condition_variable_any wake;
  std::jthread beating;  // declared last: destroyed, and so joined, before the members that it uses

  /// Returns the absolute path of the directory.
  std::filesystem::path directory() const { return std::filesystem::absolute(path).parent_path(); }

  void make_directory() {
    std::filesystem::path first_missing;
    std::error_code unexaminable;
    for (auto each = directory(); !std::filesystem::exists(each, unexaminable) && each.has_relative_path();
         each = each.parent_path()) {
      first_missing = each;
    }
    if (make_directories(path.parent_path()) && made_from.empty()) made_from = first_missing;
  }

  enum class Outcome { taken, held, unknown, gone };

  /// Tries to take the lock once. `seen` is set to the text of the file.
  /// - taken: `self` is written to the file.
  /// - held: another process holds the lock.
  /// - unknown: another process may hold it. The caller must watch() the file; if its text was `judged_stale`, the lock
  ///   is taken instead.
  /// - gone: the file or its directory was removed meanwhile, as a holder does when it ends. Try again.
  Outcome try_take(const std::string& judged_stale, std::string& seen) {
    const LockFile file(path, true);
    if (file.is_gone() || !file.guard()) return Outcome::gone;
    seen = file.text();
    if (!seen.empty()) {
      const LockHolder holder = parse_holder(seen);
      const Life life = life_of(holder, self);
      if (life == Life::held) return Outcome::held;
      if (life == Life::unknown && seen != judged_stale) return Outcome::unknown;
      recovered = fmt::format("the lock of {} was stale: taken over", holder_name(holder));
    }
    file.write(text_of(self));
    return Outcome::taken;
  }

  enum class Sign { none, life, other };

  /// Watches the holder whose text is `seen` for signs of life:
  /// - none: its time stamp did not change for `silence`.
  /// - life: its time stamp changed.
  /// - other: the file has another text or was removed.
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
      make_directory();  // in each round, since a holder that ends may remove it
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
      update_loss(true);
    }
  }

  /// Sets `loss` if this process no longer holds the directory. If `touch`, updates the time stamp of the file. If the
  /// file cannot be read now, `loss` does not change.
  void update_loss(bool touch) {
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

  /// Removes the lock file if it is this process's, and the directories that this object made, as far as they are
  /// empty.
  void release() {
    const LockFile file(path, false);
    if (file.is_open() && file.guard() && parse_holder(file.text()).token == self.token) unlink(path.c_str());
    if (made_from.empty()) return;
    for (auto each = directory(); rmdir(each.c_str()) == 0 && each != made_from; each = each.parent_path()) {
    }
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
    implementation_->release();
  } catch (const Error&) {
    // Later jobs find the lock stale.
  }
}

const std::string& RunLock::recovered() const { return implementation_->recovered; }

void RunLock::require_held(bool read_now) const {
  if (read_now) implementation_->update_loss(false);
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
           "another job took over {} while this one was suspended or could not reach the file "
           "system: this job ends without further writes",
           folder);
  }
}

}  // namespace lyceum
