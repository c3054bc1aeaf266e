#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/data/encoding/chat.h"
#include "io/data/encoding/encoding.h"
#include "io/data/records/corpus_reader.h"
#include "io/data/records/skipped.h"
#include "io/data/tokenizer/tokenizer.h"

namespace lyceum {

/// The encoded documents of a batch: the tokens of all sequences, concatenated.
struct EncodedBatch {
  /// The tokens of a document, or of a part of one that is too long for memory.
  struct Sequence {
    /// Index of the output: 0 for train, 1 for valid.
    std::size_t output;
    std::int64_t tokens, bytes;  // bytes: UTF-8 bytes of the text
    bool ends_document;          // true for a whole document and for its last part
  };
  std::vector<std::int32_t> tokens{};
  std::vector<std::uint8_t> trained{};  // for chats: 1 for each trained token, else 0; empty for texts
  std::vector<Sequence> sequences{};
  /// Records that could not be read or encoded.
  Skipped skipped{};
  ReplacedBytes replaced{};
  /// The position after the batch, and the bytes of all items up to it, as in CorpusBatch.
  CorpusPosition end{};
  std::int64_t bytes_done = 0;
};

/// Encodes batches. Each thread uses its own.
class BatchEncoder {
 public:
  /// Both arguments must outlive it.
  BatchEncoder(const Tokenizer& tokenizer, const Encoding& encoding)
      : tokenizer_(tokenizer), encoding_(encoding), encoder_(tokenizer) {}

  /// Encodes a batch of encoding.items. Skips and counts records that cannot be encoded. If such a record is one of
  /// several parts of a text, throws a bad_input Error that names the file instead.
  EncodedBatch encode(const CorpusBatch& batch);

 private:
  std::size_t output_of(const CorpusItem& item, std::int64_t record) const;
  void add(const Record& record, const CorpusItem& item, EncodedBatch& out);
  void add_chat(std::span<const ChatSegment> chat, std::size_t output, EncodedBatch& out);

  const Tokenizer& tokenizer_;
  const Encoding& encoding_;
  TextEncoder encoder_;
};

}  // namespace lyceum
