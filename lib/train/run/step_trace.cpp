#include "train/run/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <variant>

#include "io/files/atomic_file.h"
#include "io/text/table.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

/// Numbers of the tracks of a rank.
struct Tracks {
  static constexpr int steps = 0, computation = 1, waits = 2, transfers = 10;  // transfers: the first of several
};

/// The largest world, and the largest number of events of all ranks, whose traces are joined in one file. An event
/// takes 100 to 300 bytes, and viewers become slow with hundreds of megabytes.
constexpr int most_joined_ranks = 64;
constexpr std::int64_t most_joined_events = 5'000'000;
/// The number of events of a rank after which no further steps are traced.
constexpr std::int64_t most_events = 1'000'000;

void set_profile(const Stream& stream, const std::shared_ptr<Profile>& profile) {
  std::visit(
      [&](const auto& device) {
        if constexpr (requires { device.set_profile(profile); }) device.set_profile(profile);
      },
      stream);
}

/// True for the name of an action that computes, such as "F0" or "2B1".
bool is_pass(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto letter = std::ranges::find_if_not(name, is_digit);
  if (letter == name.end() || std::string_view("FBIW").find(*letter) == std::string_view::npos) return false;
  return letter + 1 != name.end() && std::all_of(letter + 1, name.end(), is_digit);
}

/// Removes a folder if it is there and can be removed.
void remove_folder(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

std::string folder_of(const RunConfig& run) { return (fs::path(run.dir) / "trace").string(); }

}  // namespace

std::string_view trace_category(std::string_view name) {
  constexpr auto named = std::to_array<std::pair<std::string_view, std::string_view>>({
      {"pipeline wait", "wait"},
      {"gradient reduction", "reduction"},
      {"all-to-all", "exchange"},
      {"replicas", "exchange"},
      {"optimizer", "optimizer"},
      {"orthogonalize", "optimizer"},
      {"load batch", "data"},
  });
  if (is_pass(name)) return "pass";
  for (const auto& [known, category] : named) {
    if (name == known) return category;
  }
  if (name.ends_with(" again")) return "recomputation";
  for (const std::string_view suffix : {" forward", " dgrad", " wgrad"}) {
    if (name.ends_with(suffix)) return "operation";
  }
  return "kernel";
}

StepTrace::StepTrace(const Config& config, const RunSetup& setup, RunReport& report)
    : config_(config), setup_(setup), report_(report) {}

StepTrace::~StepTrace() {
  try {
    if (profile_) set_profile(setup_.stream, nullptr);
  } catch (const Error&) {  // the device has failed; that error is being reported
  }
}

void StepTrace::introduce(std::int64_t done) const {
  const std::optional<TracedSteps> traced = traced_steps(config_.run);
  if (!traced || traced->last > done || done >= config_.run.steps) return;
  report_.note(fmt::format("trace      none: the run continues at step {}, after run.trace_steps = {}", done + 1,
                           config_.run.trace_steps));
}

void StepTrace::before_step(std::int64_t step) {
  const std::optional<TracedSteps> traced = traced_steps(config_.run);
  if (!traced || step < traced->first || step > traced->last || full_) return;
  if (!profile_) start();
  set_profile(setup_.stream, profile_);
  operations_->resume();
  steps_.push_back({.number = step, .begin = monotonic_nanoseconds(), .end = 0});
}

void StepTrace::after_step() {
  if (!profile_ || steps_.back().end != 0) return;  // no step is being traced
  steps_.back().end = monotonic_nanoseconds();
  operations_->pause();
  std::ranges::move(profile_->take_spans(), std::back_inserter(spans_));
  set_profile(setup_.stream, nullptr);
  std::array<std::int64_t, 1> events{event_count()};
  setup_.mesh.world.all_reduce(std::span(events), Reduction::max);
  const std::int64_t last = traced_steps(config_.run)->last;
  full_ = events[0] > most_events && steps_.back().number < last;
  if (full_) {
    report_.warn(fmt::format("the trace ends with step {}, since a rank has more than {} events", steps_.back().number,
                             most_events));
  }
  if (full_ || steps_.back().number >= last) finish();
}

std::int64_t StepTrace::event_count() const {
  return std::ssize(spans_) + std::ssize(operations_->operations()) + std::ssize(operations_->waits());
}

void StepTrace::start() {
  const ProcessGroup& world = setup_.mesh.world;
  steps_.clear();
  at_begin_ = measure_clock_offset(
      world, setup_.resources[static_cast<std::size_t>(world.rank())].host == setup_.resources.front().host);
  std::array<std::int64_t, 1> zero{monotonic_nanoseconds()};
  world.broadcast(std::as_writable_bytes(std::span(zero)), 0);
  zero_ = zero[0];
  measured_begin_ = monotonic_nanoseconds();
  profile_ = std::make_shared<Profile>();
  profile_->record_spans(true);
  spans_.clear();
  operations_.emplace(world.ledger());
}

std::int64_t StepTrace::common_time(double seconds) const {
  const std::int64_t own = std::llround(seconds * 1e9);
  const double share = measured_end_ > measured_begin_ ? static_cast<double>(own - measured_begin_) /
                                                             static_cast<double>(measured_end_ - measured_begin_)
                                                       : 0;
  const double drift = static_cast<double>(at_end_.offset - at_begin_.offset) * std::clamp(share, 0.0, 1.0);
  return own + at_begin_.offset + std::llround(drift) - zero_;
}

void StepTrace::add_steps(TraceEvents& events) const {
  events.track(Tracks::steps, "steps");
  for (const Step& step : steps_) {
    const std::string name = fmt::format("step {}", step.number);
    events.add({.name = name,
                .category = "step",
                .track = Tracks::steps,
                .begin = common_time(static_cast<double>(step.begin) * 1e-9),
                .end = common_time(static_cast<double>(step.end) * 1e-9)});
  }
}

void StepTrace::add_computation(TraceEvents& events) const {
  const bool on_host = std::holds_alternative<CpuStream>(setup_.stream);
  events.track(Tracks::computation, on_host ? "computation" : "computation, on the device");
  for (const ProfileSpan& span : spans_) {
    events.add({.name = span.name,
                .category = trace_category(span.name),
                .track = Tracks::computation,
                .begin = common_time(span.begin),
                .end = common_time(span.end)});
  }
}

void StepTrace::add_operations(TraceEvents& events) const {
  const double end_of_trace = static_cast<double>(measured_end_) * 1e-9;
  std::vector<std::pair<std::int64_t, std::int64_t>> intervals;
  for (const OperationTrace::Record& record : operations_->operations()) {
    const double finished = record.entry.finished > 0 ? record.entry.finished : end_of_trace;
    intervals.emplace_back(common_time(record.entry.started), common_time(finished));
  }
  const std::vector<int> tracks = disjoint_tracks(intervals);
  const int count = tracks.empty() ? 0 : 1 + std::ranges::max(tracks);
  for (int t = 0; t < count; ++t) events.track(Tracks::transfers + t, fmt::format("transfers {}", t + 1));
  std::vector<std::pair<std::int64_t, std::string>> names;  // by number of the operation
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const LedgerEntry& entry = operations_->operations()[i].entry;
    const std::string name = fmt::format("{} {}", entry.operation.data(), entry.group_name.data());
    const int track = Tracks::transfers + tracks[i];
    TraceEvents::Span span{.name = name,
                           .category = "transfer",
                           .track = track,
                           .begin = intervals[i].first,
                           .end = intervals[i].second,
                           .texts = {{"where", fmt::format("{}:{}", entry.file.data(), entry.line)}},
                           .numbers = {{"bytes", entry.bytes}, {"members", entry.members}, {"index", entry.index}}};
    if (entry.finished <= 0) span.texts.emplace_back("end", "not finished in the trace");
    if (entry.message()) {
      span.numbers.emplace_back("from", entry.from);
      span.numbers.emplace_back("to", entry.to);
    }
    events.add(span);
    if (entry.message()) {
      const bool sends = entry.from == setup_.mesh.world.rank();
      events.add_arrow(fmt::format("{:x}-{}-{}-{}", entry.group, entry.from, entry.to, entry.index), track,
                       sends ? span.begin : span.end, sends);
    }
    names.emplace_back(operations_->operations()[i].number, name);
  }
  events.track(Tracks::waits, "waits");
  for (const OperationTrace::Wait& wait : operations_->waits()) {
    const auto known = std::ranges::lower_bound(names, wait.number, {}, &std::pair<std::int64_t, std::string>::first);
    const bool found = known != names.end() && known->first == wait.number;
    events.add({.name = found ? known->second : "an earlier operation",
                .category = "wait",
                .track = Tracks::waits,
                .begin = common_time(wait.begin),
                .end = common_time(wait.end)});
  }
}

/// Returns what the trace says about the alignment of this rank's clock.
std::string StepTrace::clock_text() const {
  return fmt::format("within {:.1f} us of rank 0", static_cast<double>(std::max(at_begin_.error, at_end_.error)) / 1e3);
}

void StepTrace::finish() {
  if (!profile_) return;
  const ProcessGroup& world = setup_.mesh.world;
  profile_.reset();
  world.ledger().observe(nullptr);
  const RankResources& own = setup_.resources[static_cast<std::size_t>(world.rank())];
  at_end_ = measure_clock_offset(world, own.host == setup_.resources.front().host);
  measured_end_ = monotonic_nanoseconds();
  TraceEvents events(world.rank(), fmt::format("rank {}, {}, clock {}", world.rank(), own.host, clock_text()));
  add_steps(events);
  add_computation(events);
  add_operations(events);
  operations_.reset();
  spans_.clear();
  write(events);
}

void StepTrace::write(const TraceEvents& events) {
  const ProcessGroup& world = setup_.mesh.world;
  const std::string name = fmt::format("steps-{}-{}", steps_.front().number, steps_.back().number);
  const fs::path folder = folder_of(config_.run), ranks = folder / name, joined = folder / (name + ".json");
  const auto file_of_rank = [&](int rank) { return ranks / fmt::format("rank-{:05}.json", rank); };
  std::array<std::int64_t, 1> lines{std::ssize(events.lines())}, failed{0};
  world.all_reduce(std::span(lines));
  const bool joins = world.size() <= most_joined_ranks && lines[0] <= most_joined_events;
  std::string reason;
  // An earlier trace of the same steps may have files of other ranks.
  work_on_files_of_rank_zero(world, [&] { remove_folder(ranks); });
  work_on_files(world, [&] {
    try {
      make_directories(ranks);
      write_trace(file_of_rank(world.rank()),
                  {{"program", setup_.program}, {"mesh", setup_.mesh.shape.text(world.size())}, {"steps", name}},
                  events);
    } catch (const Error& error) {
      reason = error.what();
      failed[0] = 1;
    }
  });
  world.all_reduce(std::span(failed), Reduction::max);
  if (failed[0] != 0) {  // on a full disk, checkpoints need the space
    work_on_files(world, [&] {
      std::error_code ignored;
      fs::remove(file_of_rank(world.rank()), ignored);
    });
    work_on_files_of_rank_zero(world, [&] { remove_folder(ranks); });
    std::vector<std::string> reasons = world.gather(reason, 0);
    std::erase(reasons, "");
    report_.warn(fmt::format("the trace of {} could not be written: {}; training continues", name,
                             reasons.empty() ? "" : reasons.front()));
    return;
  }
  work_on_files_of_rank_zero(world, [&] {
    report_.attempt([&] {
      if (joins) {
        std::vector<fs::path> files;
        for (int rank = 0; rank < world.size(); ++rank) files.push_back(file_of_rank(rank));
        join_traces(files, joined);
        remove_folder(ranks);
      }
      report_.note(fmt::format("trace      {} of {} in {}; open it at https://ui.perfetto.dev",
                               count_text(std::ssize(steps_), "step"), count_text(world.size(), "rank"),
                               joins ? joined.string() : ranks.string()));
    });
  });
}

}  // namespace lyceum
