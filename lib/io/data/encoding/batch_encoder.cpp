#include "io/data/encoding/batch_encoder.h"

#include <string>

#include "core/error.h"
#include "core/random.h"
#include "io/text/utf8.h"

namespace lyceum {

EncodedBatch BatchEncoder::encode(const CorpusBatch& batch) {
  EncodedBatch out{.end = batch.end, .bytes_done = batch.bytes_done};
  const CorpusItem& item = encoding_.items[batch.item];
  const auto skip = [&](std::int64_t record, const std::string& reason) {
    out.skipped.add(reason, item.document.file.native() + ":" + std::to_string(record + 1));
  };
  const auto take = [&](const Record& record) {
    const std::size_t tokens = out.tokens.size(), trained = out.trained.size();
    try {
      if (encoding_.chat) {
        add_chat(rendered(record.messages, *encoding_.chat), output_of(item, record.number), out);
      } else {
        add(record, item, out);
      }
    } catch (const Error& error) {
      if (!record.part.begins || !record.part.ends) {
        fail(error.code(), "{}: {}", item.document.file.native(), error.what());
      }
      if (error.code() != ExitCode::bad_input) throw;
      out.tokens.resize(tokens);
      out.trained.resize(trained);
      skip(record.number, error.what());
    }
  };
  batch.records.read({.take = take, .skip = skip});
  return out;
}

std::size_t BatchEncoder::output_of(const CorpusItem& item, std::int64_t record) const {
  if (item.output != CorpusItem::Output::drawn) return item.output == CorpusItem::Output::valid;
  const Philox random(encoding_.seed, "valid/" + item.document.file.native());
  return random.uniform(static_cast<std::uint64_t>(record)) < encoding_.valid_fraction ? 1 : 0;
}

void BatchEncoder::add(const Record& record, const CorpusItem& item, EncodedBatch& out) {
  const std::size_t before = out.tokens.size();
  encoder_.encode(record.text, out.tokens, record.part);
  if (record.part.ends) out.tokens.push_back(tokenizer_.end_of_document());
  out.replaced.add(static_cast<std::int64_t>(invalid_utf8_bytes(record.text)), item.document.file.native());
  out.sequences.push_back({.output = output_of(item, record.number),
                           .tokens = static_cast<std::int64_t>(out.tokens.size() - before),
                           .bytes = std::ssize(record.text),
                           .ends_document = record.part.ends});
}

void BatchEncoder::add_chat(std::span<const ChatSegment> chat, std::size_t output, EncodedBatch& out) {
  const std::size_t before = out.tokens.size();
  encode_chat(chat, tokenizer_, encoder_, out.tokens, out.trained);
  std::int64_t bytes = 0;
  for (const ChatSegment& segment : chat) bytes += std::ssize(segment.text);
  if (out.tokens.back() != tokenizer_.end_of_document()) {
    out.tokens.push_back(tokenizer_.end_of_document());
    out.trained.push_back(0);
  }
  out.sequences.push_back({.output = output,
                           .tokens = static_cast<std::int64_t>(out.tokens.size() - before),
                           .bytes = bytes,
                           .ends_document = true});
}

}  // namespace lyceum
