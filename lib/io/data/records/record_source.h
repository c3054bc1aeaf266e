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

/// A record of a corpus, of which a document is made: a text, or the messages of a chat.
struct Record {
  std::int64_t number = 0;  // in its file, from 0
  std::string_view text{};
  std::vector<ChatMessage> messages{};
  TextPart part{};  // a text that is too long for memory comes in several parts
};

/// Receives the records of a block.
struct RecordSink {
  std::function<void(const Record&)> take;
  /// For a record that cannot be read: the reason in a few words, as in Skipped.
  std::function<void(std::int64_t number, const std::string& reason)> skip;
};

/// A place in a file between two blocks.
struct RecordPosition {
  std::int64_t bytes = 0;   // uncompressed bytes before it
  std::int64_t record = 0;  // records before it, blank lines among them
  bool operator==(const RecordPosition&) const = default;
};

/// Records that fit into memory: work for one thread.
struct RecordBlock {
  /// Passes the records to a sink, in order. Any thread may call it, also after the source is gone.
  std::function<void(const RecordSink&)> read;
  RecordPosition end{};  // behind the block
  bool last = false;     // nothing follows in the file
};

/// Reads a file of a corpus, a block at a time.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  /// Returns nothing at the end of the file. Throws a bad_input Error that names the file and what is wrong with it.
  virtual std::optional<RecordBlock> next() = 0;
  /// Bytes of the item that were read so far, as they are stored.
  virtual std::int64_t bytes_read() const = 0;
};

/// Returns the last position at which a text that continues can be cut; 0 if there is none.
using TextCut = std::function<std::size_t(std::string_view)>;

/// Bytes of work for one thread.
struct BatchSizes {
  std::size_t records = std::size_t{1} << 20;  // about, in whole records
  std::size_t text = std::size_t{1} << 24;     // a longer text is read in parts, where the tokenizer can cut it
  std::size_t document = 64'000'000;           // at most, of a text that cannot be cut; a longer record is skipped
};

/// The contents of records that a corpus is read for, and how much of them at a time.
struct RecordReading {
  std::string text_key = "text";  // the field that holds the text of a record
  bool chats = false;             // records are chats
  TextCut cut{};
  BatchSizes sizes{};
};

/// A format of files. The table of record_formats.cpp lists all of them.
struct RecordFormat {
  int number;  // identifies the format in the journals of unfinished encodings, so it never changes
  /// Returns in a few words why a file with these first bytes, uncompressed, cannot be read; "" if it can.
  std::string (*why_unreadable)(std::string_view beginning);
  /// Opens a file at a position that a block of it ended at. `item` and `reading` outlive the source.
  std::unique_ptr<RecordSource> (*open)(const CorpusItem& item, const RecordPosition& from,
                                        const RecordReading& reading);
};

}  // namespace lyceum
