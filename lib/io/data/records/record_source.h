#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/records/chat_record.h"
#include "io/data/records/corpus_item.h"
#include "io/text/text_part.h"

namespace lyceum {

/// A record of a corpus, which becomes one document: either a text or the messages of a chat. Does not own the text.
struct Record {
  std::int64_t number = 0;  // index in its file, from 0
  std::string_view text{};
  std::vector<ChatMessage> messages{};
  TextPart part{};  // a text that is too long for memory is passed in several parts
};

/// Callbacks that receive the records of a block.
struct RecordSink {
  std::function<void(const Record&)> take;
  /// Called for a record that cannot be read. `reason`: a few words, as in Skipped.
  std::function<void(std::int64_t number, const std::string& reason)> skip;
};

/// A position in an item between two blocks.
struct RecordPosition {
  std::int64_t bytes = 0;   // uncompressed bytes before the position
  std::int64_t record = 0;  // lines before the position, including blank ones
  bool operator==(const RecordPosition&) const = default;
};

/// Some consecutive records that fit into memory: the unit of work of one thread.
struct RecordBlock {
  /// Passes the records to a sink, in order. Any thread may call it, also after the source was destroyed.
  std::function<void(const RecordSink&)> read;
  RecordPosition end{};  // position after the block
  bool last = false;     // true: no block follows in the item; false: unknown
};

/// Reads an item of a corpus, one block at a time.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  /// Returns the next block, or nothing at the end. Throws a bad_input Error that names the file and the problem.
  virtual std::optional<RecordBlock> next() = 0;
  /// Returns how many bytes of the item were read so far, as stored (compressed).
  virtual std::int64_t bytes_read() const = 0;
};

/// Returns the last offset at which a text that continues can be cut so that its parts can be encoded separately; 0 if
/// there is none.
using TextCut = std::function<std::size_t(std::string_view)>;

/// The sizes of blocks, in bytes.
struct BatchSizes {
  std::size_t records = std::size_t{1} << 20;  // of a block of whole records, approximately
  std::size_t text = std::size_t{1} << 24;     // a longer text is read in parts of about this size, cut by TextCut
  /// Limit of a text without a possible cut, beyond which reading fails, and of a line with a record, beyond which it
  /// is skipped.
  std::size_t document = 64'000'000;
};

/// Which contents of records are read, and in blocks of which sizes.
struct RecordReading {
  std::string text_key = "text";  // the key of the text in a record
  bool chats = false;             // records are chats, not texts
  TextCut cut{};
  BatchSizes sizes{};
};

/// A format of files. The table in record_formats.cpp lists all of them.
struct RecordFormat {
  /// Identifies the format in the journals of unfinished encodings, so it never changes.
  int number;
  /// Returns in a few words why a file with these first bytes, uncompressed, cannot be read; "" if it can.
  std::string (*why_unreadable)(std::string_view beginning);
  /// Opens an item at its beginning or at the end of one of its blocks. `item` and `reading` must outlive the source.
  std::unique_ptr<RecordSource> (*open)(const CorpusItem& item, const RecordPosition& from,
                                        const RecordReading& reading);
};

}  // namespace lyceum
