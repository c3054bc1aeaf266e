#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "io/data/records/corpus_item.h"
#include "io/data/records/record_source.h"

namespace lyceum {

/// A position between two batches, from which reading can resume.
struct CorpusPosition {
  std::int64_t item = 0;
  RecordPosition within{};  // position in the item
  bool operator==(const CorpusPosition&) const = default;
};

/// A block of records of one item: the unit of work of one thread.
struct CorpusBatch {
  /// Index in the items of the reader.
  std::size_t item = 0;
  RecordBlock records{};
  /// Position after the batch.
  CorpusPosition end{};
  /// Bytes of all items up to `end`, as stored, approximately.
  std::int64_t bytes_done = 0;
};

/// Reads the items of a corpus in order, one batch at a time. The batches depend only on the items and on `reading`: a
/// reader that begins at the end of a batch returns the same batches after it.
class CorpusReader {
 public:
  /// `items` must outlive the reader. `from`: the beginning, or the end of a batch.
  CorpusReader(std::span<const CorpusItem> items, const CorpusPosition& from, RecordReading reading);
  ~CorpusReader();
  /// Returns the next batch, or nothing after the last one. Throws the errors of RecordSource::next().
  std::optional<CorpusBatch> next();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
