#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "io/routing/mixture_id.h"

namespace lyceum {

/// How evenly single steps were routed, as mean and maximum over the steps that a record sums. The record's counts do
/// not contain this: experts that take turns from step to step have even sums. NaN if unknown.
struct StepBalance {
  float max_vio_mean = std::numeric_limits<float>::quiet_NaN();  // load of the busiest expert over the mean, minus 1
  float max_vio_max = std::numeric_limits<float>::quiet_NaN();
  float idle_mean = std::numeric_limits<float>::quiet_NaN();  // experts that no token of the step chose
  float idle_max = std::numeric_limits<float>::quiet_NaN();
};

/// What one router did since the last record, over the whole global batch.
struct LayerRouting {
  MixtureId id;
  std::int64_t top_k = 0, experts = 0;
  std::vector<std::int64_t> counts;     // [top_k, experts]: tokens whose k-th choice is that expert
  std::vector<float> mean_probability;  // [experts]
  float mean_entropy = 0;               // of tokens' probabilities, in nats; NaN where that is not known
  std::vector<std::int64_t> dropped{};  // [top_k, experts]: of counts, those dropped; none where none ever is
  StepBalance steps{};                  // of single steps; unknown in an evaluation, which has none
};

/// What all routers did between two records.
struct RoutingRecord {
  std::int64_t step;
  std::vector<LayerRouting> layers;
};

/// `routing.h5` as a run writes it: /step [S], /layers/LLL/counts [S, top_k, experts] (tokens whose k-th choice is that
/// expert since the last record), /layers/LLL/mean_probability [S, experts] (over the same tokens),
/// /layers/LLL/mean_entropy [S] (of the tokens' probabilities, in nats; NaN where it is not known), where experts have
/// limited room /layers/LLL/dropped [S, top_k, experts] (of counts, choices that were dropped), and
/// /layers/LLL/step_max_vio_mean, step_max_vio_max, step_idle_mean, step_idle_max [S] (StepBalance); LLL is the layer's
/// index in three digits. These are of the FFN's router; the attention's has the same under /layers/LLL/attention.
/// Dimension scales step, choice, expert; `units`; attributes description and run_uuid on the root, expert_sizes and
/// expert_rank on each router's group and datasets, and always_on on the group where the first experts are. A kill at
/// any instant leaves a readable file that misses at most the newest record. One rank owns the log; next to the file is
/// `.routing.h5.next`, which costs as much disk again while a run is active.
class RoutingLog {
 public:
  struct Layer {
    MixtureId id;
    std::int64_t top_k;
    bool drops = false;                      // whether it says which choices were dropped
    std::int64_t always_on = 0;              // the first experts, which every token has and none chooses
    std::vector<std::int64_t> expert_sizes;  // width of each routed expert
    std::vector<std::int64_t> expert_rank;   // expert-parallel rank that holds it; −1: none, it has no weights
    bool operator==(const Layer&) const = default;
  };
  /// Attributes of the root, for a reader who has only this file.
  struct Origin {
    std::string run_uuid;     // of the run that trained the model
    std::string description;  // one sentence
  };
  /// Opens or creates; records of steps after `resume_step` are cut off (a resumed run writes them again), and -1
  /// replaces whatever is there. Throws a bad_input Error when records that stay are damaged or of another model;
  /// another expert_rank is taken over.
  RoutingLog(std::filesystem::path file, std::vector<Layer> layers, std::int64_t resume_step, Origin origin = {});
  ~RoutingLog();
  RoutingLog(const RoutingLog&) = delete;
  RoutingLog& operator=(const RoutingLog&) = delete;

  /// Steps grow; `layers` are those of the constructor in their order. When the disk fails it throws, and the file
  /// stays as it was: see last_step().
  void append(std::int64_t step, std::span<const LayerRouting> layers);
  /// Of the newest record in the file; -1 without records.
  std::int64_t last_step() const { return last_step_; }

 private:
  void create();
  void resume(std::int64_t resume_step);
  void write_recent();
  void publish();

  std::filesystem::path file_;
  std::filesystem::path next_;   // the file's twin, some records behind
  std::filesystem::path spare_;  // the published file's second name while the two change places
  std::vector<Layer> layers_;
  Origin origin_;
  std::deque<RoutingRecord> recent_;  // all that the twin lacks
  std::int64_t records_ = 0;          // in the published file and in recent_
  std::int64_t published_ = 0;        // in the published file
  std::int64_t last_step_ = -1;
  bool next_usable_ = false;
};

constexpr std::int64_t routing_format_version = 1;

}  // namespace lyceum
