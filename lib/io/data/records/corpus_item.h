#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>

namespace lyceum {

struct RecordFormat;
extern const RecordFormat plain_text;  // plain_text.h

/// A text that becomes one document of a token file: bytes [begin, begin + bytes) of a file.
struct TextDocument {
  std::filesystem::path file;
  std::int64_t begin = 0, bytes = 0;
  bool operator==(const TextDocument&) const = default;
};

/// An input of an encoding: a file with records, or a plain text, which may be a part of a file.
struct CorpusItem {
  /// The output that the item is written to. `drawn`: a random draw decides for each record, or for each compressed
  /// text.
  enum class Output { train, valid, drawn };
  const RecordFormat* format = &plain_text;
  TextDocument document{};
  bool compressed = false;
  std::int64_t modified = 0;  // the file's modification time, in nanoseconds since an unspecified epoch
  Output output = Output::train;
  /// Number of uncompressed bytes to read from the beginning of the item; 0: all.
  std::int64_t most_bytes = 0;

  /// True if the item is a plain text that is not compressed. It is one document, and any range of its bytes can be
  /// chosen.
  bool is_plain() const { return format == &plain_text && !compressed; }
  /// Returns approximately how many bytes of the item are read, as stored (compressed).
  std::int64_t bytes_read() const {
    return most_bytes > 0 && !compressed ? std::min(most_bytes, document.bytes) : document.bytes;
  }
};

}  // namespace lyceum
