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

/// The tokens of the documents of a batch, one after another.
struct EncodedBatch {
  struct Sequence {
    std::size_t output;
    std::int64_t tokens, bytes;  // bytes: of text
    bool ends_document;
  };
  std::vector<std::int32_t> tokens{};
  std::vector<std::uint8_t> trained{};  // of each token, for chats; 1 or 0
  std::vector<Sequence> sequences{};
  Skipped skipped{};
  ReplacedBytes replaced{};
  CorpusPosition end{};
  std::int64_t bytes_done = 0;
};

/// Encodes batches in one thread.
class BatchEncoder {
 public:
  /// Both must outlive it.
  BatchEncoder(const Tokenizer& tokenizer, const Encoding& encoding)
      : tokenizer_(tokenizer), encoding_(encoding), encoder_(tokenizer) {}

  EncodedBatch encode(const CorpusBatch& batch);

 private:
  std::size_t output_of(const CorpusItem& item, std::int64_t record) const;
  void add(const Record& record, const CorpusItem& item, EncodedBatch& out);
  void add_chat(std::span<const ChatStretch> chat, std::size_t output, EncodedBatch& out);

  const Tokenizer& tokenizer_;
  const Encoding& encoding_;
  TextEncoder encoder_;
};

}  // namespace lyceum
