#include "io/routing/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/hdf5.h"
#include "io/files/system_reason.h"
#include "io/routing/history.h"
#include "io/routing/layout.h"
#include "io/routing/moves.h"

namespace lyceum {
namespace {

/// Returns the path .NAME.SUFFIX next to a file NAME.
std::filesystem::path hidden_neighbour(const std::filesystem::path& file, const char* suffix) {
  return file.parent_path() / fmt::format(".{}{}", file.filename().string(), suffix);
}

/// Makes the log a regular file with a single name, since it is changed in place: other names, such as those of backups
/// made of hard links, keep the old contents. A journal of the file is one of the copy too.
void make_own_copy(const std::filesystem::path& file) {
  std::error_code error;
  const bool link = std::filesystem::is_symlink(file, error);
  if (!link && std::filesystem::hard_link_count(file, error) == 1) return;
  const std::filesystem::path fresh = hidden_neighbour(file, ".next");
  std::filesystem::copy_file(file, fresh, error);
  require(!error, "{}: cannot be written: {}", fresh.string(), system_reason(error));
  publish_file(fresh, file);
}

/// Throws unless the sizes of a record are those of the log's layer.
void require_record(const RoutingLog::Layer& expected, const LayerRouting& layer) {
  const auto experts = static_cast<std::int64_t>(expected.expert_sizes.size());
  require(layer.id == expected.id && layer.top_k == expected.top_k && layer.experts == experts,
          "routing of layer {} (top {} of {} experts) was given for layer {} (top {} of {})", label_of(layer.id),
          layer.top_k, layer.experts, label_of(expected.id), expected.top_k, experts);
  require(static_cast<std::int64_t>(layer.counts.size()) == layer.top_k * experts &&
              static_cast<std::int64_t>(layer.mean_probability.size()) == experts,
          "routing of layer {}: {} counts and {} probabilities do not match top {} of {} experts", label_of(layer.id),
          layer.counts.size(), layer.mean_probability.size(), layer.top_k, experts);
  require(layer.dropped.size() == (expected.drops ? layer.counts.size() : 0),
          "routing of layer {}: there are {} counts of dropped choices for {} counts", label_of(layer.id),
          layer.dropped.size(), layer.counts.size());
  const ReplicaCounts& replicas = layer.replicas;
  require(replicas.tokens.size() == replicas.replicas.size() &&
              (replicas.empty() || std::ssize(replicas.replicas) == experts),
          "routing of layer {}: there are {} numbers of replicas, and {} of their tokens, for {} experts",
          label_of(layer.id), replicas.replicas.size(), replicas.tokens.size(), experts);
}

/// Returns the moves after step `step` from the ranks of `before` to those of `after`, which have the same experts.
std::vector<ExpertMove> moves_between(const std::vector<RoutingLog::Layer>& before,
                                      const std::vector<RoutingLog::Layer>& after, std::int64_t step) {
  std::vector<ExpertMove> moves;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const std::vector<std::int64_t>&from = before[i].expert_rank, &to = after[i].expert_rank;
    for (std::size_t e = 0; e < to.size(); ++e) {
      if (from[e] == to[e]) continue;
      moves.push_back({step, after[i].id.layer, static_cast<std::int64_t>(e), from[e], to[e]});
    }
  }
  return moves;
}

}  // namespace

void ReplicaCounts::add(const ReplicaCounts& more) {
  if (empty()) {
    *this = more;
    return;
  }
  if (more.empty()) return;
  std::ranges::transform(replicas, more.replicas, replicas.begin(), std::plus<>());
  std::ranges::transform(tokens, more.tokens, tokens.begin(), std::plus<>());
  kept += more.kept;
  sent += more.sent;
  bytes += more.bytes;
}

RoutingLog::RoutingLog(std::filesystem::path file, std::vector<Layer> layers, std::int64_t resume_step, Origin origin)
    : file_(std::move(file)), layers_(std::move(layers)), origin_(std::move(origin)) {
  require(!layers_.empty(), "{}: a model without experts has no routing to log", file_.string());
  for (const Layer& layer : layers_) {
    require(layer.top_k > 0 && !layer.expert_sizes.empty() && layer.expert_rank.size() == layer.expert_sizes.size(),
            "routing log: layer {} cannot have top {} of {} experts with {} ranks of experts", label_of(layer.id),
            layer.top_k, layer.expert_sizes.size(), layer.expert_rank.size());
  }
  std::error_code ignored;  // if a file cannot be removed, writing it fails and reports the error
  for (const char* suffix : {".next", ".spare"}) {  // an older version wrote both
    std::filesystem::remove(hidden_neighbour(file_, suffix), ignored);
  }
  if (resume_step >= 0 && std::filesystem::exists(file_)) {
    resume(resume_step);
  } else {
    create();
  }
}

void RoutingLog::create() {
  const std::filesystem::path fresh = hidden_neighbour(file_, ".next");
  log_.reset();
  last_step_ = -1;
  try {
    hdf5::File file = hdf5::File::create(fresh);
    create_datasets(file, layers_, origin_);
    file.close();
    JournaledHdf5::discard_journal(file_);  // it must not be applied to the new file
    publish_file(fresh, file_);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(fresh, ignored);
    throw;
  }
  log_.emplace(file_);
}

void RoutingLog::resume(std::int64_t resume_step) {
  make_own_copy(file_);
  log_.emplace(file_);
  std::int64_t records = 0;
  RecordRange kept;               // moves
  std::vector<ExpertMove> added;  // after them
  bool same_layers = true, complete = true, empty = false;
  {
    const RoutingReader reader(file_);
    const auto end = std::ranges::upper_bound(reader.steps(), resume_step);
    records = end - reader.steps().begin();
    if (records > 0) last_step_ = *(end - 1);
    complete = reader.complete() && end == reader.steps().end();
    same_layers = reader.routers().size() == layers_.size();
    for (std::size_t i = 0; same_layers && i < layers_.size(); ++i) {
      const RoutingHistory::Layer& old = reader.routers()[i];
      same_layers = old.id == layers_[i].id && old.top_k == layers_[i].top_k &&
                    old.expert_sizes == layers_[i].expert_sizes && old.drops == layers_[i].drops &&
                    old.always_on == layers_[i].always_on;
    }
    empty = records == 0;
    if (same_layers) {
      RanksOfExperts ranks(reader);
      kept.begin = ranks.next();
      ranks.advance(resume_step + 1);
      kept.end = ranks.next();
      complete = complete && kept.begin == 0 && kept.end == reader.move_count();
      std::vector<Layer> old = layers_;
      for (std::size_t i = 0; i < old.size(); ++i) old[i].expert_rank = ranks.of(i);
      added = moves_between(old, layers_, resume_step);
      empty = records == 0 && kept.size() == 0;
      if (kept.begin > 0) {  // the earlier moves are unknown: the known ones are written again
        std::vector<ExpertMove> again;
        for_each_move(reader, kept, [&](const ExpertMove& move) { again.push_back(move); });
        added.insert(added.begin(), again.begin(), again.end());
        kept = {};
      }
    }
  }
  if (empty) return create();
  require_input(same_layers,
                "{}: contains the routing of a model with different layers or experts, or of a run that differs in "
                "whether moe.capacity_factor is set; set another run.dir or move the file away",
                file_.string());
  if (added.empty() && complete) return;
  log_->edit([&](hdf5::File& file) {
    revise_datasets(file, layers_, origin_, {.records = records, .moves = static_cast<std::int64_t>(kept.size())});
    append_moves(file, added);
  });
  log_->settle();
}

void RoutingLog::place(std::int64_t step, std::vector<Layer> layers) {
  require(step >= last_step_ && layers.size() == layers_.size(),
          "routing log: experts of {} layers moved after step {}, there are {} layers and a record of step {}",
          layers.size(), step, layers_.size(), last_step_);
  const std::vector<ExpertMove> moves = moves_between(layers_, layers, step);
  if (moves.empty()) return;
  log_->edit([&](hdf5::File& file) {
    append_moves(file, moves);
    set_placements(file, layers);
  });
  layers_ = std::move(layers);
  log_->settle();
}

bool RoutingLog::finish() {
  using namespace std::chrono_literals;
  for (int tries = 0; !log_->settle(); ++tries) {
    if (tries == 100) return false;
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

void RoutingLog::append(std::int64_t step, std::span<const LayerRouting> layers) {
  require(step > last_step_, "routing log: step {} cannot follow step {}", step, last_step_);
  require(layers.size() == layers_.size(), "routing log: {} layers were given instead of {}", layers.size(),
          layers_.size());
  for (std::size_t i = 0; i < layers.size(); ++i) require_record(layers_[i], layers[i]);
  log_->edit([&](hdf5::File& file) { append_record(file, step, layers_, layers); });
  last_step_ = step;
  log_->settle();
}

}  // namespace lyceum
