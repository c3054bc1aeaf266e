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

struct EncodedSize {
  std::int64_t documents = 0, bytes = 0, tokens = 0;
  std::int64_t trained = 0;  // tokens: all but for chats
  bool operator==(const EncodedSize&) const = default;
};

/// Bytes of texts that are not UTF-8, which are encoded as U+FFFD.
struct ReplacedBytes {
  static constexpr std::size_t few = 3;
  std::int64_t bytes = 0;
  std::vector<std::string> first{};  // names of files with such bytes: the first few, and one more if there are more
  void add(std::int64_t more, const std::string& file);
  void add(const ReplacedBytes& later);
  /// "12 bytes that are not UTF-8 (a.txt, b.txt, c.txt, …)"
  std::string text() const;
};

struct EncodingProgress {
  std::int64_t done = 0, total = 0;  // bytes of the items, as they lie on the disk, about
  std::int64_t text = 0;             // bytes of text that this process has encoded
};

struct Encoding {
  std::vector<CorpusItem> items{};
  std::string json_key = "text";
  const ChatTemplate* chat = nullptr;  // all items are records, and these are chats
  std::string train{}, valid{};        // prefixes of token files; `valid` may be empty where no item goes there
  double valid_fraction = 0;           // of what is drawn
  std::uint64_t seed = 1;
  int threads = 1;
  std::string tokenizer_sha256{};
  BatchSizes batches{};
  double save_seconds = 10;                                    // between two times that it notes how far it is
  std::function<void(const EncodingProgress&)> progress = {};  // called by one thread at a time
};

struct EncodingResult {
  EncodedSize train{}, valid{};
  Skipped skipped{};  // records
  ReplacedBytes replaced{};
  std::int64_t resumed_text = 0;  // bytes of text that an interrupted process had encoded
};

/// Writes the token files `train` and, where something goes there, `valid`: every document in order, an end-of-document
/// token after each, and for chats which of the tokens are trained. The result depends neither on `threads` nor on
/// interruptions: what is unfinished is in TRAIN.bin.partial and others next to it, and TRAIN.progress notes how much
/// of that is good. The next call for the same items, files of the same sizes and times, resumes from there. Throws a
/// bad_input Error that names a file and a place that cannot be read, or when nothing goes to one of the two. A record
/// that the tokenizer cannot encode is skipped; if it comes in parts, that is an Error.
EncodingResult encode_corpus(const Tokenizer& tokenizer, const Encoding& encoding);

/// Whether that would resume where an interrupted one stopped.
bool resumes(const Tokenizer& tokenizer, const Encoding& encoding);

}  // namespace lyceum
