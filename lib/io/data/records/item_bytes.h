#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "io/data/records/corpus_item.h"
#include "io/files/text_stream.h"

namespace lyceum {

/// The bytes of an item in order, uncompressed.
class ItemBytes {
 public:
  /// Begins behind the first `taken` bytes. Errors as TextStream's.
  ItemBytes(const CorpusItem& item, std::int64_t taken);
  /// Appends up to `bytes` bytes; false when there are none.
  bool read(std::size_t bytes, std::string& out);
  /// True if most_bytes of the item were read and more follow, so that the last line or character may be incomplete.
  bool is_cut();
  /// Bytes of the item that were read so far, as they are stored.
  std::int64_t stored_bytes() const { return stream_.file_position() - begin_; }

 private:
  TextStream stream_;
  std::int64_t begin_;  // of the item, in the file
  bool is_limited_ = false;
  std::int64_t left_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace lyceum
