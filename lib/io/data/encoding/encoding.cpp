#include "io/data/encoding/encoding.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "io/data/records/corpus_reader.h"
#include "io/data/records/json_record.h"
#include "io/data/tokens/token_source.h"
#include "io/files/sha256.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"

namespace lyceum {

namespace {

constexpr std::size_t outputs = 2;  // train, valid

/// What is written of the outputs, and where the corpus continues after it.
struct State {
  CorpusPosition at;
  std::array<TokenFileWriter::Progress, outputs> written{};
  std::array<EncodedSize, outputs> size{};
  Skipped skipped;
};

/// Identifies an encoding.
std::string identity_of(const Encoding& encoding) {
  std::string all = fmt::format("3 {} {} {} {} {} {} {} {}\n", encoding.tokenizer_sha256, encoding.json_key,
                                encoding.chat ? encoding.chat->name : "", encoding.valid, encoding.valid_fraction,
                                encoding.seed, encoding.batches.text, encoding.batches.document);
  for (const auto& [kind, document, compressed, modified, output, most_bytes] : encoding.items) {
    all += fmt::format("{} {} {} {} {} {} {} {}\n", document.file.native(), document.begin, document.bytes, modified,
                       static_cast<int>(kind), compressed, static_cast<int>(output), most_bytes);
  }
  return sha256(all);
}

std::string journal_of(const Encoding& encoding) { return encoding.train + ".progress"; }

void write_journal(const Encoding& encoding, const std::string& identity, const State& state) {
  nlohmann::ordered_json json{{"encoding", identity},
                              {"item", state.at.item},
                              {"bytes", state.at.bytes},
                              {"record", state.at.record},
                              {"outputs", nlohmann::json::array()},
                              {"skipped", state.skipped.json()}};
  for (std::size_t o = 0; o < outputs; ++o) {
    const auto& [written, size] = std::pair(state.written[o], state.size[o]);
    json["outputs"].push_back({{"documents", written.documents},
                               {"sequences", written.sequences},
                               {"tokens", written.tokens},
                               {"masked", written.masked},
                               {"bytes", size.bytes},
                               {"trained", size.trained}});
  }
  write_whole_file(journal_of(encoding), json_text(json, 2) + "\n");
}

/// Nothing when there is none, one of another encoding, or one that was damaged.
std::optional<State> read_journal(const Encoding& encoding, std::int64_t vocab) {
  std::error_code error;
  if (!std::filesystem::exists(journal_of(encoding), error)) return std::nullopt;
  State state;
  try {
    const std::string text = read_whole_file(journal_of(encoding));
    require_shallow(text);
    const nlohmann::json json = parse_json<nlohmann::json>(text);
    if (json.at("encoding") != identity_of(encoding)) return std::nullopt;
    state.at = {.item = Exact(json.at("item")), .bytes = Exact(json.at("bytes")), .record = Exact(json.at("record"))};
    for (std::size_t o = 0; o < outputs; ++o) {
      const nlohmann::json& output = json.at("outputs").at(o);
      state.written[o] = {.documents = Exact(output.at("documents")),
                          .sequences = Exact(output.at("sequences")),
                          .tokens = Exact(output.at("tokens")),
                          .masked = output.at("masked")};
      state.size[o] = {.documents = state.written[o].documents,
                       .bytes = Exact(output.at("bytes")),
                       .tokens = state.written[o].tokens,
                       .trained = Exact(output.at("trained"))};
    }
    state.skipped = Skipped::from_json(json.at("skipped"));
  } catch (const Error&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  const bool kept = TokenFileWriter::kept(encoding.train, vocab, state.written[0]) &&
                    (encoding.valid.empty() || TokenFileWriter::kept(encoding.valid, vocab, state.written[1]));
  return kept ? std::optional(state) : std::nullopt;
}

/// Encoded documents, one after another.
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
  CorpusPosition end{};
  std::int64_t bytes_done = 0;
};

/// What one thread does to a batch.
class BatchEncoder {
 public:
  BatchEncoder(const Tokenizer& tokenizer, const Encoding& encoding)
      : tokenizer_(tokenizer), encoding_(encoding), encoder_(tokenizer) {}

  EncodedBatch encode(const CorpusBatch& batch) {
    EncodedBatch out{.end = batch.end, .bytes_done = batch.bytes_done};
    const CorpusItem& item = encoding_.items[batch.item];
    const std::string& name = item.document.file.native();
    if (batch.file) {
      add(read_part_of_file(name, batch.file->begin, batch.file->bytes), output_of(item, 0), {}, out);
    } else if (item.kind == CorpusItem::Kind::text) {
      add(batch.text, output_of(item, 0), {.begins = !batch.continues, .ends = !batch.goes_on}, out);
    } else if (batch.too_long) {
      out.skipped.add("too long", place(name, batch.first_record));
    } else {
      add_records(batch, item, out);
    }
    return out;
  }

 private:
  static std::string place(const std::string& file, std::int64_t record) {
    return file + ":" + std::to_string(record + 1);
  }

  std::size_t output_of(const CorpusItem& item, std::int64_t record) const {
    if (item.output != CorpusItem::Output::drawn) return item.output == CorpusItem::Output::valid;
    const Philox random(encoding_.seed, "valid/" + item.document.file.native());
    return random.uniform(static_cast<std::uint64_t>(record)) < encoding_.valid_fraction ? 1 : 0;
  }

  void add(std::string_view text, std::size_t output, TextPart part, EncodedBatch& out) {
    const std::size_t before = out.tokens.size();
    encoder_.encode(text, out.tokens, part);
    if (part.ends) out.tokens.push_back(tokenizer_.end_of_document());
    out.sequences.push_back({.output = output,
                             .tokens = static_cast<std::int64_t>(out.tokens.size() - before),
                             .bytes = std::ssize(text),
                             .ends_document = part.ends});
  }

  void add_records(const CorpusBatch& batch, const CorpusItem& item, EncodedBatch& out) {
    for_lines(batch, [&](std::int64_t record, std::string_view line) {
      std::string text;
      std::vector<ChatStretch> chat;
      try {
        if (encoding_.chat) {
          chat = rendered(messages_of_chat(line), *encoding_.chat);
        } else {
          text = text_of_record(line, encoding_.json_key);
        }
      } catch (const Error& error) {
        return out.skipped.add(error.what(), place(item.document.file.native(), record));
      }
      if (encoding_.chat) {
        add_chat(chat, output_of(item, record), out);
      } else {
        add(text, output_of(item, record), {}, out);
      }
    });
  }

  void add_chat(const std::vector<ChatStretch>& chat, std::size_t output, EncodedBatch& out) {
    const std::size_t before = out.tokens.size();
    encode_chat(chat, tokenizer_, encoder_, out.tokens, out.trained);
    std::int64_t bytes = 0;
    for (const ChatStretch& stretch : chat) bytes += std::ssize(stretch.text);
    if (out.tokens.back() != tokenizer_.end_of_document()) {
      out.tokens.push_back(tokenizer_.end_of_document());
      out.trained.push_back(0);
    }
    out.sequences.push_back({.output = output,
                             .tokens = static_cast<std::int64_t>(out.tokens.size() - before),
                             .bytes = bytes,
                             .ends_document = true});
  }

  const Tokenizer& tokenizer_;
  const Encoding& encoding_;
  TextEncoder encoder_;
};

/// Workers take batches in order and hand in what they made of them in the same order. Each holds one batch.
class OrderedEncoding {
 public:
  OrderedEncoding(const Tokenizer& tokenizer, const Encoding& encoding, State state)
      : tokenizer_(tokenizer),
        encoding_(encoding),
        identity_(identity_of(encoding)),
        state_(std::move(state)),
        reader_(
            encoding.items, state_.at, [&tokenizer](std::string_view text) { return tokenizer.cut(text); },
            encoding.batches) {
    for (const CorpusItem& item : encoding.items) total_ += item.bytes_read();
    writers_.emplace_back(encoding.train, tokenizer.vocab(), state_.written[0]);
    if (!encoding.valid.empty()) writers_.emplace_back(encoding.valid, tokenizer.vocab(), state_.written[1]);
  }

  State run() {
    {
      std::vector<std::jthread> workers;
      for (int t = 0; t < encoding_.threads; ++t) workers.emplace_back([this] { work(); });
    }
    if (failure_) std::rethrow_exception(failure_);
    require_input(state_.size[0].documents > 0, "there is no text to encode: {}",
                  state_.skipped.count() > 0 ? "skipped records: " + state_.skipped.text() : "the files have none");
    require_input(encoding_.valid.empty() || state_.size[1].documents > 0,
                  "no record was held out for {}: {} are too few, hold out a larger share", encoding_.valid,
                  state_.size[0].documents);
    for (TokenFileWriter& writer : writers_) writer.finish();
    return state_;
  }

 private:
  void work() {
    try {
      BatchEncoder encoder(tokenizer_, encoding_);
      for (;;) {
        std::int64_t number = 0;
        const std::optional<CorpusBatch> batch = take(number);
        if (!batch || !hand_in(number, encoder.encode(*batch))) return;
      }
    } catch (...) {
      const std::lock_guard lock(turn_mutex_);
      if (!failure_) failure_ = std::current_exception();
      turn_changed_.notify_all();
    }
  }

  std::optional<CorpusBatch> take(std::int64_t& number) {
    const std::lock_guard lock(reader_mutex_);
    number = next_++;
    return reader_.next();
  }

  /// False when another worker has failed.
  bool hand_in(std::int64_t number, const EncodedBatch& batch) {
    std::unique_lock lock(turn_mutex_);
    turn_changed_.wait(lock, [&] { return turn_ == number || failure_; });
    if (failure_) return false;
    write(batch);
    if (seconds_since(saved_) >= encoding_.save_seconds) save();
    if (encoding_.progress) encoding_.progress({.done = batch.bytes_done, .total = total_, .text = text_});
    ++turn_;
    turn_changed_.notify_all();
    return true;
  }

  void write(const EncodedBatch& batch) {
    std::size_t at = 0;
    for (const auto& [output, tokens, bytes, ends_document] : batch.sequences) {
      const auto count = static_cast<std::size_t>(tokens);
      std::optional<std::span<const std::uint8_t>> trained;
      if (encoding_.chat) trained = std::span(batch.trained).subspan(at, count);
      writers_.at(output).add_sequence(std::span(batch.tokens).subspan(at, count), trained, ends_document);
      at += count;
      EncodedSize& size = state_.size[output];
      size.documents += ends_document ? 1 : 0;
      size.bytes += bytes;
      size.tokens += tokens;
      size.trained += trained ? std::ranges::count(*trained, 1) : tokens;
      text_ += bytes;
    }
    state_.skipped.add(batch.skipped);
    state_.at = batch.end;
  }

  void save() {
    for (std::size_t o = 0; o < writers_.size(); ++o) state_.written[o] = writers_[o].save();
    write_journal(encoding_, identity_, state_);
    saved_ = Clock::now();
  }

  const Tokenizer& tokenizer_;
  const Encoding& encoding_;
  std::string identity_;
  State state_;
  std::vector<TokenFileWriter> writers_;
  std::int64_t total_ = 0, text_ = 0;
  Clock::time_point saved_ = Clock::now();
  std::mutex reader_mutex_;
  CorpusReader reader_;
  std::int64_t next_ = 0;
  std::mutex turn_mutex_;
  std::condition_variable turn_changed_;
  std::int64_t turn_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

bool resumes(const Tokenizer& tokenizer, const Encoding& encoding) {
  return read_journal(encoding, tokenizer.vocab()).has_value();
}

EncodingResult encode_corpus(const Tokenizer& tokenizer, const Encoding& encoding) {
  require_usage(encoding.threads > 0, "encoding with {} threads: at least one is needed", encoding.threads);
  const std::optional<State> kept = read_journal(encoding, tokenizer.vocab());
  // A journal of another encoding must not vouch for files that this one begins.
  std::error_code ignored;
  if (!kept) std::filesystem::remove(journal_of(encoding), ignored);
  const State begin = kept.value_or(State{});
  const State end = OrderedEncoding(tokenizer, encoding, begin).run();
  std::filesystem::remove(journal_of(encoding), ignored);
  return {.train = end.size[0],
          .valid = end.size[1],
          .skipped = end.skipped,
          .resumed_text = begin.size[0].bytes + begin.size[1].bytes};
}

}  // namespace lyceum
