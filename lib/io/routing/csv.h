#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string_view>
#include <utility>
#include <vector>

#include "io/routing/history.h"

namespace lyceum {

/// The part of a log that is written as CSV.
struct CsvSelection {
  std::int64_t every = 1;  // writes each n-th record, of which the newest is one
  /// Writes these ranges [first, last] of layers; all if empty.
  std::vector<std::pair<std::int64_t, std::int64_t>> layers = {};
};
/// The numbers of records and routers that were written.
struct CsvSize {
  std::int64_t records = 0, routers = 0;
};
/// Writes records as CSV, with the rank that held each expert in the last step of the record. The header is:
/// step,layer,choice,expert,expert_size,expert_rank,tokens,mean_probability,site, and a last column dropped if capacity
/// is limited. Calls write(text) for consecutive parts of the text. Throws a usage Error if no router is selected.
CsvSize write_routing_csv(const RoutingReader& log, const CsvSelection& selection,
                          const std::function<void(std::string_view)>& write);
/// The number of moves that were written, and of older ones that are unknown, see known_moves().
struct MovesCsvSize {
  std::int64_t moves = 0, unknown = 0;
};
/// Writes the known moves of experts between ranks in the selected layers as CSV with the header
/// step,layer,expert,from,to. Calls write(text) for consecutive parts of the text.
MovesCsvSize write_moves_csv(const RoutingReader& log, const CsvSelection& selection,
                             const std::function<void(std::string_view)>& write);
/// Writes all records to a stream.
void write_routing_csv(const RoutingReader& log, std::ostream& out);

}  // namespace lyceum
