#include "io/data/corpus_reader.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "io/files/text_stream.h"

namespace lyceum {

namespace {

/// One item, uncompressed, behind its first bytes.
class ItemText {
 public:
  ItemText(const CorpusItem& item, std::int64_t taken) : stream_(item.document.file.native()) {
    // Only a text that is not compressed has parts.
    stream_.skip(stream_.compressed() ? taken : item.document.begin + taken);
    if (!stream_.compressed()) left_ = item.document.bytes - taken;
    if (item.most_bytes > 0) left_ = std::min(left_, item.most_bytes - taken);
  }

  /// Appends up to `bytes` bytes; false when there are none.
  bool read(std::size_t bytes, std::string& out) {
    const std::size_t before = out.size();
    out.resize(before + std::min(bytes, static_cast<std::size_t>(std::max<std::int64_t>(0, left_))));
    out.resize(before + stream_.read(std::span(out).subspan(before)));
    left_ -= static_cast<std::int64_t>(out.size() - before);
    return out.size() > before;
  }
  std::int64_t file_position() const { return stream_.file_position(); }

 private:
  TextStream stream_;
  std::int64_t left_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

struct CorpusReader::Implementation {
  std::span<const CorpusItem> items;
  CorpusPosition at;
  TextCut cut;
  BatchSizes sizes;
  std::int64_t bytes_before = 0;     // of items that are done
  std::optional<ItemText> source{};  // of the current item, behind `rest`
  std::string rest{};                // that was read and not given yet

  const CorpusItem& item() const { return items[static_cast<std::size_t>(at.item)]; }

  void open() {
    if (source) return;
    source.emplace(item(), at.bytes);
    rest.clear();
  }
  void close() {
    source.reset();
    bytes_before += item().bytes_read();
    at = {.item = at.item + 1};
  }
  CorpusBatch finished(CorpusBatch batch, std::size_t bytes) {
    at.bytes += static_cast<std::int64_t>(bytes);
    batch.bytes_done = bytes_before;
    if (source) batch.bytes_done += std::min(source->file_position() - item().document.begin, item().bytes_read());
    batch.end = at;
    return batch;
  }

  CorpusBatch whole_file() {
    CorpusBatch batch{.item = static_cast<std::size_t>(at.item), .file = item().document};
    close();
    return finished(std::move(batch), 0);
  }

  /// Nothing at the end of the item.
  std::optional<CorpusBatch> part_of_text() {
    open();
    std::size_t end = 0;  // of this part
    bool goes_on = true;
    for (std::size_t bytes = sizes.text; end == 0; bytes = std::min(2 * bytes, sizes.document)) {
      require_input(rest.size() <= sizes.document,
                    "{} has more than {:g} MB of text behind byte {} that cannot be encoded in parts: split it into "
                    "documents, or raise --max-document-mb",
                    item().document.file.native(), static_cast<double>(sizes.document) / 1e6,
                    item().document.begin + at.bytes);
      while (rest.size() <= bytes && source->read(bytes + 1 - rest.size(), rest)) {
      }
      goes_on = rest.size() > bytes;
      end = goes_on ? cut(rest) : rest.size();
      if (!goes_on) break;
    }
    if (rest.empty()) return std::nullopt;
    CorpusBatch batch{.item = static_cast<std::size_t>(at.item), .goes_on = goes_on, .continues = at.bytes > 0};
    batch.text = rest.substr(0, end);
    rest.erase(0, end);
    return finished(std::move(batch), end);
  }

  /// Whole lines, or one that is too long. Nothing at the end of the item.
  std::optional<CorpusBatch> records() {
    open();
    CorpusBatch batch{.item = static_cast<std::size_t>(at.item), .first_record = at.record};
    std::size_t end = 0;  // of the last whole line
    for (bool more = true; end == 0 && more && rest.size() <= sizes.document;) {
      const std::size_t searched = rest.size();
      more = source->read(sizes.records, rest);
      const std::size_t newline = std::string_view(rest).substr(searched).rfind('\n');
      if (newline != std::string_view::npos) end = searched + newline + 1;
    }
    // Lines behind the first one came with the last read.
    if (std::min(rest.find('\n'), rest.size()) > sizes.document) {
      batch.too_long = true;
      ++at.record;
      return finished(std::move(batch), skip_line());
    }
    if (end == 0) end = rest.size();  // the last line has no newline
    if (end == 0) return std::nullopt;
    batch.text = rest.substr(0, end);
    rest.erase(0, end);
    at.record += std::ranges::count(batch.text, '\n');
    return finished(std::move(batch), end);
  }

  /// Drops what was read and the rest of its line; how much that was.
  std::size_t skip_line() {
    std::size_t bytes = 0;
    for (;;) {
      const std::size_t newline = rest.find('\n');
      const std::size_t dropped = newline == std::string::npos ? rest.size() : newline + 1;
      rest.erase(0, dropped);
      bytes += dropped;
      if (newline != std::string::npos || !source->read(sizes.records, rest)) return bytes;
    }
  }
};

CorpusReader::CorpusReader(std::span<const CorpusItem> items, const CorpusPosition& from, TextCut cut,
                           const BatchSizes& sizes)
    : implementation_(new Implementation{.items = items, .at = from, .cut = std::move(cut), .sizes = sizes}) {
  for (std::int64_t i = 0; i < from.item; ++i) {
    implementation_->bytes_before += items[static_cast<std::size_t>(i)].bytes_read();
  }
}

CorpusReader::~CorpusReader() = default;

std::optional<CorpusBatch> CorpusReader::next() {
  Implementation& own = *implementation_;
  while (own.at.item < std::ssize(own.items)) {
    const CorpusItem& item = own.item();
    const bool short_text = item.kind == CorpusItem::Kind::text && !item.compressed &&
                            item.document.bytes <= static_cast<std::int64_t>(own.sizes.text);
    if (short_text) return own.whole_file();
    std::optional<CorpusBatch> batch = item.kind == CorpusItem::Kind::records ? own.records() : own.part_of_text();
    if (batch) return batch;
    own.close();
  }
  return std::nullopt;
}

}  // namespace lyceum
