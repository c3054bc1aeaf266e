#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/files/journaled_hdf5.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// How evenly single steps were routed: mean and maximum over the steps of a record. It cannot be computed from the
/// record's counts: if experts take turns from step to step, the sums are even. NaN if unknown.
struct StepBalance {
  /// MaxVio: load of the busiest expert over the mean, minus 1.
  float max_vio_mean = std::numeric_limits<float>::quiet_NaN();
  float max_vio_max = std::numeric_limits<float>::quiet_NaN();
  /// Number of experts that no token of the step chose.
  float idle_mean = std::numeric_limits<float>::quiet_NaN();
  float idle_max = std::numeric_limits<float>::quiet_NaN();
};

/// The replicas of the experts of one router (parallel.replicas), summed over passes, expert groups and the steps of a
/// record.
struct ReplicaCounts {
  std::vector<std::int64_t> replicas;  // [experts]: replicas of each expert
  std::vector<std::int64_t> tokens;    // [experts]: of the expert's tokens, those that its replicas computed
  std::int64_t kept = 0;               // replicas whose weights were in their spare slot already
  std::int64_t sent = 0;               // transfers of weights to a replica, with those that backward repeats
  std::int64_t bytes = 0;              // of weights in these transfers

  bool empty() const { return replicas.empty(); }
  /// Adds `more`, which has the same number of experts. If this is empty, it becomes a copy of `more`.
  void add(const ReplicaCounts& more);
  bool operator==(const ReplicaCounts&) const = default;
};

/// The choices of one router since the last record, over the whole global batch.
struct LayerRouting {
  MixtureId id;
  std::int64_t top_k = 0, experts = 0;
  std::vector<std::int64_t> counts;     // [top_k, experts]: tokens whose k-th choice is that expert
  std::vector<float> mean_probability;  // [experts]: mean over tokens of the router's probabilities
  float mean_entropy = 0;               // mean entropy of a token's probabilities, nats; NaN if unknown
  /// [top_k, experts]: of counts, choices beyond capacity; empty if capacity is not limited.
  std::vector<std::int64_t> dropped{};
  StepBalance steps{};       // unknown in an evaluation, which has no steps
  ReplicaCounts replicas{};  // empty without parallel.replicas
};

/// The choices of all routers between two records.
struct RoutingRecord {
  std::int64_t step;  // the last one of the record
  std::vector<LayerRouting> layers;
};

/// A change of the rank that holds an expert of an FFN, between step `step` and the next one.
struct ExpertMove {
  std::int64_t step, layer, expert;
  std::int64_t from, to;  // expert-parallel ranks
  bool operator==(const ExpertMove&) const = default;
};

/// Writes `routing.h5`, the log of a run's routing. One rank must own it. The file has S records and these datasets,
/// where LLL is the layer's index with three digits:
/// - /step [S]
/// - /layers/LLL/counts [S, top_k, experts]: tokens whose k-th choice is that expert since the last record
/// - /layers/LLL/dropped [S, top_k, experts]: of counts, choices beyond capacity; only if capacity is limited
/// - /layers/LLL/mean_probability [S, experts]: over the same tokens
/// - /layers/LLL/mean_entropy [S]: of a token's probabilities, nats; NaN if unknown
/// - /moves [M, 5]: the ExpertMoves since the log began, in order; absent if there are none
/// - /layers/LLL/step_max_vio_mean, step_max_vio_max, step_idle_mean, step_idle_max [S]: StepBalance
/// - /layers/LLL/replicas, replica_tokens [S, experts], replicas_kept, replicas_sent, replica_bytes [S]: ReplicaCounts,
///   0 in records without; absent if no record has any
///
/// These are for the FFN's router; the attention's router has the same datasets under /layers/LLL/attention. There are
/// dimension scales step, choice and expert, and attributes:
/// - `units` of each dataset
/// - description and run_uuid of the root
/// - expert_sizes and expert_rank of each router's group and datasets
/// - always_on of the group if the first experts are always active
///
/// The log is a JournaledHdf5: a kill, a full disk or a loss of power at any moment leaves a file that lacks at most
/// the newest record. A record is appended in place, compressed and without loss; no old record is read or written for
/// it.
class RoutingLog {
 public:
  /// The constant properties of one router.
  struct Layer {
    MixtureId id;
    std::int64_t top_k;
    bool drops = false;                      // capacity is limited, so records have `dropped`
    std::int64_t always_on = 0;              // the number of first experts that are always active
    std::vector<std::int64_t> expert_sizes;  // width of each routed expert
    std::vector<std::int64_t> expert_rank;   // expert-parallel rank that holds it; −1 if it has no weights
    bool operator==(const Layer&) const = default;
  };
  /// Attributes of the root, for readers who have only this file.
  struct Origin {
    std::string run_uuid;     // of the run that trained the model
    std::string description;  // one sentence
  };
  /// Opens or creates the file. Removes records of steps after `resume_step`, since a resumed run writes them again.
  /// Replaces the file if neither records nor moves remain, or if `resume_step` is −1. Reads the steps and shapes of
  /// records, but not their counts. Throws a bad_input Error if these are damaged or of another model. Removes moves
  /// after steps later than `resume_step`, and those that are not known_moves(); if expert_rank then differs from that
  /// of `layers`, adds the differences as moves after `resume_step`. A file of an older version is continued in its own
  /// layout.
  RoutingLog(std::filesystem::path file, std::vector<Layer> layers, std::int64_t resume_step, Origin origin = {});

  /// Appends a record. `step` must be larger than that of the last record; `layers` must match those of the
  /// constructor, in the same order. Throws if it cannot be written; the file then keeps its old records. last_step()
  /// then says whether the record was appended before the error. HDF5's own readers that hold the file open postpone
  /// the moment from which others see the record; RoutingReader sees it at once.
  void append(std::int64_t step, std::span<const LayerRouting> layers);
  /// Records that experts have moved to the ranks in `layers` after step `step`, which must not be before that of the
  /// last record. `layers` must be those of the constructor but for expert_rank. Throws as append().
  void place(std::int64_t step, std::vector<Layer> layers);
  /// Waits up to two seconds for readers that postpone the newest records. Returns false if they still do: other
  /// readers than RoutingReader then do not see these records until a run of this folder starts again. Throws if the
  /// file cannot be written.
  bool finish();
  /// Returns the step of the newest record in the file; −1 if it has none.
  std::int64_t last_step() const { return last_step_; }

 private:
  void create();
  void resume(std::int64_t resume_step);

  std::filesystem::path file_;
  std::vector<Layer> layers_;
  Origin origin_;
  std::optional<JournaledHdf5> log_;
  std::int64_t last_step_ = -1;
};

constexpr std::int64_t routing_format_version = 1;

}  // namespace lyceum
