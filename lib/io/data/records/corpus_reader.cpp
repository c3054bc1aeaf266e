#include "io/data/records/corpus_reader.h"

#include <algorithm>
#include <utility>

namespace lyceum {

struct CorpusReader::Implementation {
  std::span<const CorpusItem> items;
  CorpusPosition at;
  RecordReading reading;
  std::int64_t bytes_before = 0;           // of the items before the current one
  std::unique_ptr<RecordSource> source{};  // of the current item

  const CorpusItem& item() const { return items[static_cast<std::size_t>(at.item)]; }

  void close() {
    source.reset();
    bytes_before += item().bytes_read();
    at = {.item = at.item + 1};
  }

  /// Returns the next batch of the current item. At its end, closes the item and returns nothing.
  std::optional<CorpusBatch> next() {
    if (!source) source = item().format->open(item(), at.within, reading);
    std::optional<RecordBlock> block = source->next();
    if (!block) {
      close();
      return std::nullopt;
    }
    CorpusBatch batch{.item = static_cast<std::size_t>(at.item), .records = std::move(*block)};
    at.within = batch.records.end;
    if (batch.records.last) close();
    batch.end = at;
    batch.bytes_done = bytes_before + (source ? std::min(source->bytes_read(), item().bytes_read()) : 0);
    return batch;
  }
};

CorpusReader::CorpusReader(std::span<const CorpusItem> items, const CorpusPosition& from, RecordReading reading)
    : implementation_(new Implementation{.items = items, .at = from, .reading = std::move(reading)}) {
  for (std::int64_t i = 0; i < from.item; ++i) {
    implementation_->bytes_before += items[static_cast<std::size_t>(i)].bytes_read();
  }
}

CorpusReader::~CorpusReader() = default;

std::optional<CorpusBatch> CorpusReader::next() {
  Implementation& own = *implementation_;
  while (own.at.item < std::ssize(own.items)) {
    if (std::optional<CorpusBatch> batch = own.next()) return batch;
  }
  return std::nullopt;
}

}  // namespace lyceum
