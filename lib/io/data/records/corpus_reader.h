#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/data/records/corpus.h"

namespace lyceum {

/// A place between two batches.
struct CorpusPosition {
  std::int64_t item = 0;
  std::int64_t bytes = 0;   // of the item that come before, uncompressed
  std::int64_t record = 0;  // records of the item that come before, blank lines among them
  bool operator==(const CorpusPosition&) const = default;
};

/// Bytes of work for one thread.
struct BatchSizes {
  std::size_t records = std::size_t{1} << 20;  // about, in whole lines
  std::size_t text = std::size_t{1} << 24;     // a longer text is read in parts, where the tokenizer can cut it
  std::size_t document = 64'000'000;           // at most, of a text that cannot be cut; a longer record is skipped
};

/// Work for one thread.
struct CorpusBatch {
  std::size_t item = 0;
  std::optional<TextDocument> file{};  // a text still to be read
  std::string text{};                  // else a text, a part of one (goes_on), or records, each with its newline
  bool goes_on = false;
  bool continues = false;  // the text does: another part came before
  std::int64_t first_record = 0;
  bool too_long = false;  // the first record is, and is skipped
  CorpusPosition end{};
  std::int64_t bytes_done = 0;  // of all items, as they lie on the disk, about
};

/// Calls each(record, line) for the lines of a batch of records, but blank ones.
template <class Each>
void for_lines(const CorpusBatch& batch, const Each& each) {
  std::string_view rest = batch.text;
  for (std::int64_t record = batch.first_record; !rest.empty(); ++record) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) each(record, line);
  }
}

/// Returns the last position at which a text that continues can be cut; 0 if there is none.
using TextCut = std::function<std::size_t(std::string_view)>;

/// Reads a corpus from any position on, a part that fits into memory at a time. Texts are cut at places that depend on
/// `sizes` and `cut` only, not on where it begins.
class CorpusReader {
 public:
  /// `items` must outlive it.
  CorpusReader(std::span<const CorpusItem> items, const CorpusPosition& from, TextCut cut,
               const BatchSizes& sizes = {});
  ~CorpusReader();
  /// Nothing behind the last. Throws a bad_input Error that names a file that cannot be read or is damaged, and the
  /// place, or a text of more than `sizes.document` bytes that cannot be cut.
  std::optional<CorpusBatch> next();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
