#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>

namespace lyceum {

struct RecordFormat;
extern const RecordFormat plain_text;  // plain_text.h

/// A text that becomes one document of a token file: a file, or a part of one.
struct TextDocument {
  std::filesystem::path file;
  std::int64_t begin = 0, bytes = 0;
  bool operator==(const TextDocument&) const = default;
};

/// A file that records are read from, or a part of a text that is not compressed.
struct CorpusItem {
  /// Which of the two outputs it goes to; `drawn`: each record, or compressed text, by a separate random draw.
  enum class Output { train, valid, drawn };
  const RecordFormat* format = &plain_text;
  TextDocument document{};
  bool compressed = false;
  std::int64_t modified = 0;  // time of the file's last change, in nanoseconds since an unspecified epoch
  Output output = Output::train;
  std::int64_t most_bytes = 0;  // that are taken from its beginning, uncompressed; 0: all

  /// True for a text that is not compressed: one document, whose bytes can be chosen and cut.
  bool is_plain() const { return format == &plain_text && !compressed; }
  /// Bytes that are read of it, about, as they are stored.
  std::int64_t bytes_read() const {
    return most_bytes > 0 && !compressed ? std::min(most_bytes, document.bytes) : document.bytes;
  }
};

}  // namespace lyceum
