#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// A text that becomes one document of a token file: a file, or a part of one.
struct TextDocument {
  std::filesystem::path file;
  std::int64_t begin = 0, bytes = 0;
  bool operator==(const TextDocument&) const = default;
};

std::int64_t bytes_of(std::span<const TextDocument> documents);

struct DocumentChoice {
  std::vector<TextDocument> chosen, rest;  // each in the order given
};
/// Chooses whole documents, by (seed, purpose, path), that hold at most `bytes` together. When they hold less than half
/// of it, because documents are few or large, the largest one left is cut at a line and its end is chosen too.
DocumentChoice choose_documents(std::vector<TextDocument> documents, std::int64_t bytes, std::uint64_t seed,
                                std::string_view purpose);

/// What is read at a stretch: a text, or a file with a record a line. What is compressed is read as a whole.
struct CorpusItem {
  enum class Kind { text, records };
  /// Which of the two outputs it goes to; `drawn`: each record, or compressed text, by a separate random draw.
  enum class Output { train, valid, drawn };
  Kind kind = Kind::text;
  TextDocument document{};
  bool compressed = false;
  std::int64_t modified = 0;  // when the file was, in nanoseconds since an unspecified epoch
  Output output = Output::train;
  std::int64_t most_bytes = 0;  // that are taken from its beginning, uncompressed; 0: all

  /// Bytes that are read of it, about, as they lie on the disk.
  std::int64_t bytes_read() const {
    return most_bytes > 0 && !compressed ? std::min(most_bytes, document.bytes) : document.bytes;
  }
};

struct CorpusChoice {
  std::int64_t most_bytes = 0;  // that are read, about; 0: all
  double valid_fraction = 0;    // of the bytes; 0: nothing is held out
  std::uint64_t seed = 1;
};
/// What is read of whole files, those for training first. Of texts that are not compressed, whole documents are chosen
/// to the byte; of each other file as much is taken from its beginning, and what is held out is drawn record by record.
/// Throws a bad_input Error when the texts are too few to hold some out.
std::vector<CorpusItem> choose_items(std::vector<CorpusItem> files, const CorpusChoice& choice);

}  // namespace lyceum
