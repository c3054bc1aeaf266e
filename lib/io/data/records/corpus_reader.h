#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "io/data/records/corpus_item.h"
#include "io/data/records/record_source.h"

namespace lyceum {

/// A place between two batches.
struct CorpusPosition {
  std::int64_t item = 0;
  RecordPosition within{};  // the item
  bool operator==(const CorpusPosition&) const = default;
};

/// Work for one thread.
struct CorpusBatch {
  std::size_t item = 0;
  RecordBlock records{};
  CorpusPosition end{};
  std::int64_t bytes_done = 0;  // of all items, as they are stored, about
};

/// Reads a corpus from any position on, a batch at a time. Batches depend on the items and on `reading` only, not on
/// the position that it begins at.
class CorpusReader {
 public:
  /// `items` must outlive it.
  CorpusReader(std::span<const CorpusItem> items, const CorpusPosition& from, RecordReading reading);
  ~CorpusReader();
  /// Returns nothing behind the last batch. Throws as RecordSource::next() does.
  std::optional<CorpusBatch> next();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
