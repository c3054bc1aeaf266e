#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "io/data/records/corpus_item.h"
#include "io/files/text_stream.h"

namespace lyceum {

/// Reads the bytes of an item in order, uncompressed.
class ItemBytes {
 public:
  /// Begins after the first `taken` uncompressed bytes of the item. The constructor and the reading functions throw the
  /// errors of TextStream.
  ItemBytes(const CorpusItem& item, std::int64_t taken);
  /// Appends up to `bytes` bytes to `out`. Returns false if there are none left.
  bool read(std::size_t bytes, std::string& out);
  /// Returns true if CorpusItem::most_bytes were read and more bytes follow, so that the last line or character may be
  /// incomplete. Consumes the next byte to find out, so call it once, after the last read().
  bool probe_cut();
  /// Returns how many bytes of the item were read so far, as stored (compressed).
  std::int64_t stored_bytes() const { return stream_.file_position() - begin_; }

 private:
  TextStream stream_;
  std::int64_t begin_;  // byte offset of the item in the file
  bool is_limited_ = false;
  std::int64_t left_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace lyceum
