#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/routing/log.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// The records [begin, end) of a log.
struct RecordRange {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

/// The contents of a routing log (see RoutingLog), or a part of them, with S records.
struct RoutingHistory {
  std::vector<std::int64_t> steps;  // [S]: the last step of each record, ascending
  /// The records of one router.
  struct Layer {
    MixtureId id;
    std::int64_t top_k, experts;
    std::vector<std::int64_t> expert_sizes, expert_rank;
    std::vector<std::int64_t> counts;     // [S, top_k, experts]
    std::vector<float> mean_probability;  // [S, experts]
    std::vector<float> mean_entropy{};    // [S], nats; empty for an older file
    std::vector<StepBalance> steps{};     // [S]; empty for an older file
    bool drops = false;                   // capacity is limited, so `dropped` is recorded
    std::int64_t always_on = 0;
    std::vector<std::int64_t> dropped{};    // [S, top_k, experts] if `drops`, else empty
    std::vector<ReplicaCounts> replicas{};  // [S] if some record of the log has replicas, else empty

    /// Returns the number of experts that tokens choose from.
    std::int64_t choosable() const { return experts - always_on; }
    /// Returns S.
    std::size_t records() const { return counts.size() / static_cast<std::size_t>(top_k * experts); }
  };
  std::vector<Layer> layers;        // in forward order; expert_rank is the newest
  std::vector<ExpertMove> moves{};  // in order; see read_known_moves()
};

/// Reads and checks a routing log piece by piece, so memory does not grow with the number of its records. While the
/// result or a copy of it exists, a run that appends to the file leaves what is read here as it is.
class RoutingReader {
 public:
  /// A log without records and routers.
  RoutingReader() : RoutingReader(RoutingHistory{}) {}
  /// Reads from memory.
  RoutingReader(RoutingHistory history);  // NOLINT: implicit, so what reads a log also accepts its contents
  /// Reads the steps, shapes and attributes of a file. Throws a bad_input Error that names the file and the problem.
  explicit RoutingReader(const std::filesystem::path& file);

  /// Returns the last step of each record, ascending.
  const std::vector<std::int64_t>& steps() const;
  /// Returns the routers in forward order, without records: the vectors with an axis S are empty.
  const std::vector<RoutingHistory::Layer>& routers() const;
  /// Returns the number of moves of experts between ranks in the log; see known_moves().
  std::size_t move_count() const;
  /// Returns some of the moves, in order. Throws a bad_input Error if they are not of experts of the log.
  std::vector<ExpertMove> read_moves(RecordRange moves) const;
  /// Returns the number of the router of a layer's FFN. Throws a bad_input Error if the log has none.
  std::size_t ffn_router(std::int64_t layer) const;
  /// Returns the path of the file; "routing log" for a history in memory.
  const std::string& name() const;
  /// True if no dataset or attribute is missing that this version writes.
  bool complete() const;
  /// Returns a router with the given records only. Throws a bad_input Error if they are damaged.
  RoutingHistory::Layer read(std::size_t router, RecordRange records) const;
  /// Calls use(layer, first) for consecutive parts of these records, in order. `layer` has the records from number
  /// `first` on, about 16 MB.
  void for_each_part(std::size_t router, RecordRange records,
                     const std::function<void(const RoutingHistory::Layer&, std::size_t)>& use) const;

 private:
  struct Source;
  struct MemorySource;
  struct FileSource;
  std::shared_ptr<const Source> source_;
};

/// Returns all records and the known moves of a routing log. Throws a bad_input Error that names the file and the
/// problem.
RoutingHistory read_routing(const std::filesystem::path& file);

}  // namespace lyceum
