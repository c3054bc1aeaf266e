#include "io/data/records/plain_text.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "io/data/records/item_bytes.h"
#include "io/data/records/record_formats.h"
#include "io/files/whole_file.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

class PlainText : public RecordSource {
 public:
  PlainText(const CorpusItem& item, const RecordPosition& from, const RecordReading& reading)
      : item_(item), at_(from), reading_(reading) {}

  std::optional<RecordBlock> next() override {
    const bool is_short = item_.is_plain() && item_.document.bytes <= static_cast<std::int64_t>(reading_.sizes.text);
    return is_short ? whole() : part();
  }
  std::int64_t bytes_read() const override { return bytes_ ? bytes_->stored_bytes() : 0; }

 private:
  /// Returns the whole text as a block. The thread that processes the block reads the file.
  RecordBlock whole() const {
    return {.read =
                [document = item_.document](const RecordSink& sink) {
                  const std::string text = read_part_of_file(document.file, document.begin, document.bytes);
                  sink.take({.text = text});
                },
            .end = {.bytes = item_.document.bytes},
            .last = true};
  }

  std::optional<RecordBlock> part() {
    if (!bytes_) bytes_.emplace(item_, at_.bytes);
    std::size_t end = 0;  // of this part, in bytes
    bool goes_on = true;
    for (std::size_t bytes = reading_.sizes.text; end == 0; bytes = std::min(2 * bytes, reading_.sizes.document)) {
      require_input(rest_.size() <= reading_.sizes.document,
                    "{} has more than {:g} MB of text after byte {} that cannot be encoded in parts: split it into "
                    "documents, or raise --max-document-mb",
                    item_.document.file.native(), static_cast<double>(reading_.sizes.document) / 1e6,
                    item_.document.begin + at_.bytes);
      while (rest_.size() <= bytes && bytes_->read(bytes + 1 - rest_.size(), rest_)) {
      }
      goes_on = rest_.size() > bytes;
      if (!goes_on && bytes_->probe_cut()) rest_.resize(rest_.size() - cut_character_bytes(rest_));
      end = goes_on ? reading_.cut(rest_) : rest_.size();
      if (!goes_on) break;
    }
    if (rest_.empty()) return std::nullopt;
    const TextPart part{.begins = at_.bytes == 0, .ends = !goes_on};
    std::string text = rest_.substr(0, end);
    rest_.erase(0, end);
    at_.bytes += static_cast<std::int64_t>(end);
    return RecordBlock{
        .read = [text = std::move(text), part](const RecordSink& sink) { sink.take({.text = text, .part = part}); },
        .end = at_};
  }

  const CorpusItem& item_;
  RecordPosition at_;
  const RecordReading& reading_;
  std::optional<ItemBytes> bytes_{};  // bytes after `rest_`
  std::string rest_{};                // bytes that were read but are not yet part of a block
};

}  // namespace

std::string why_not_text(std::string_view beginning) {
  if (beginning.empty()) return "empty";
  if (looks_like_text(beginning)) return "";
  if (const std::string format = foreign_format(beginning); !format.empty()) return format;
  return beginning.find('\0') != std::string_view::npos ? "binary" : "not UTF-8";
}

const RecordFormat plain_text{.number = 0,
                              .why_unreadable = why_not_text,
                              .open = [](const CorpusItem& item, const RecordPosition& from,
                                         const RecordReading& reading) -> std::unique_ptr<RecordSource> {
                                return std::make_unique<PlainText>(item, from, reading);
                              }};

}  // namespace lyceum
