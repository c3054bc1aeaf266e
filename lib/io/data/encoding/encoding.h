#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/data/encoding/chat.h"
#include "io/data/records/corpus_item.h"
#include "io/data/records/record_source.h"
#include "io/data/records/skipped.h"
#include "io/data/tokenizer/tokenizer.h"

namespace lyceum {

/// The size of an output of an encoding.
struct EncodedSize {
  std::int64_t documents = 0, bytes = 0, tokens = 0;  // bytes: UTF-8 bytes of text
  std::int64_t trained = 0;                           // tokens that count in the loss: all of them, except in chats
  bool operator==(const EncodedSize&) const = default;
};

/// Counts bytes that are not UTF-8, which are encoded as U+FFFD.
struct ReplacedBytes {
  static constexpr std::size_t few = 3;
  std::int64_t bytes = 0;
  std::vector<std::string> first{};  // the first files with such bytes: up to `few`, and one more if there are more
  void add(std::int64_t more, const std::string& file);
  void add(const ReplacedBytes& later);
  /// Returns "12 bytes that are not UTF-8 (a.txt, b.txt, c.txt, …)".
  std::string text() const;
};

/// The progress of an encoding.
struct EncodingProgress {
  std::int64_t done = 0, total = 0;  // bytes of the items, as stored, approximately
  std::int64_t text = 0;             // bytes of text encoded by this process
};

/// The inputs, outputs and settings of encode_corpus().
struct Encoding {
  std::vector<CorpusItem> items{};
  std::string json_key = "text";
  const ChatTemplate* chat = nullptr;  // null: items have texts; else all items have records with chats
  std::string train{}, valid{};        // prefixes of the outputs; `valid` may be empty if no item goes there
  double valid_fraction = 0;           // share of the records of `drawn` items that go to `valid`
  std::uint64_t seed = 1;
  int threads = 1;
  std::string tokenizer{}, tokenizer_sha256{};  // file name of the tokenizer, and digest of the file
  BatchSizes batches{};
  double save_seconds = 10;                                    // time between two saves of the progress
  std::function<void(const EncodingProgress&)> progress = {};  // called by any worker thread, but never concurrently
};

/// The result of encode_corpus().
struct EncodingResult {
  EncodedSize train{}, valid{};
  Skipped skipped{};  // skipped records
  ReplacedBytes replaced{};
  std::int64_t resumed_text = 0;  // bytes of text encoded by an interrupted process
};

/// Writes the token files `train` and, unless it is empty, `valid`, with their descriptions. They contain the documents
/// in the order of the items, an end-of-document token after each, and for chats a mask of the trained tokens.
///
/// The files do not depend on `threads` or on interruptions. Unfinished output is in TRAIN.bin.partial and similar
/// files, and TRAIN.progress records how much of it is complete. The next call with the same settings and items (files
/// of the same sizes and times) resumes from there.
///
/// A record that the tokenizer cannot encode is skipped. Throws a bad_input Error that names file and position if a
/// file cannot be read or a text in several parts cannot be encoded, or if an output receives no document; and the
/// errors of MegatronWriter.
EncodingResult encode_corpus(const Tokenizer& tokenizer, const Encoding& encoding);

/// True if encode_corpus() would resume an interrupted encoding.
bool resumes(const Tokenizer& tokenizer, const Encoding& encoding);

}  // namespace lyceum
