#include "io/data/encoding/encoding.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "io/data/encoding/batch_encoder.h"
#include "io/data/encoding/encoding_journal.h"
#include "io/data/records/corpus_reader.h"
#include "io/data/tokens/megatron_writer.h"

namespace lyceum {

void ReplacedBytes::add(std::int64_t more, const std::string& file) {
  if (more == 0) return;
  bytes += more;
  if (first.size() <= few && std::ranges::find(first, file) == first.end()) first.push_back(file);
}

void ReplacedBytes::add(const ReplacedBytes& later) {
  for (const std::string& file : later.first) {
    if (first.size() <= few && std::ranges::find(first, file) == first.end()) first.push_back(file);
  }
  bytes += later.bytes;
}

std::string ReplacedBytes::text() const {
  std::string files;
  for (std::size_t i = 0; i < first.size(); ++i) files += (i > 0 ? ", " : "") + (i < few ? first[i] : "…");
  return std::to_string(bytes) + (bytes == 1 ? " byte that is" : " bytes that are") + " not UTF-8 (" + files + ")";
}

namespace {

/// Encodes with several worker threads. Each worker repeatedly takes the next batch, encodes it, waits for its turn,
/// and writes the tokens. So batches are written in order, and each worker holds only one of them.
class OrderedEncoding {
 public:
  OrderedEncoding(const Tokenizer& tokenizer, const Encoding& encoding, EncodingState state)
      : tokenizer_(tokenizer),
        encoding_(encoding),
        identity_(encoding_identity(encoding)),
        state_(std::move(state)),
        reader_(encoding.items, state_.at,
                {.text_key = encoding.json_key,
                 .chats = encoding.chat != nullptr,
                 .cut = [&tokenizer](std::string_view text) { return tokenizer.cut(text); },
                 .sizes = encoding.batches}) {
    for (const CorpusItem& item : encoding.items) total_ += item.bytes_read();
    writers_.emplace_back(encoding.train, tokenizer.vocab(), state_.written[0]);
    if (!encoding.valid.empty()) writers_.emplace_back(encoding.valid, tokenizer.vocab(), state_.written[1]);
  }

  EncodingState run() {
    {
      std::vector<std::jthread> workers;
      for (int t = 0; t < encoding_.threads; ++t) workers.emplace_back([this] { work(); });
    }
    if (failure_) std::rethrow_exception(failure_);
    require_input(state_.size[0].documents > 0, "there is no text to encode: {}",
                  state_.skipped.count() > 0 ? "skipped records: " + state_.skipped.text() : "the files contain none");
    require_input(encoding_.valid.empty() || state_.size[1].documents > 0,
                  "no record was held out for {}: {} are too few, hold out a larger share", encoding_.valid,
                  state_.size[0].documents);
    // All are complete before the first is published: after a full disk, the next call can continue.
    for (std::size_t o = 0; o < writers_.size(); ++o) writers_[o].complete(description_of(state_.size[o]));
    for (MegatronWriter& writer : writers_) writer.publish();
    return state_;
  }

 private:
  TokenMeta description_of(const EncodedSize& size) const {
    return {.bytes = size.bytes,
            .documents = size.documents,
            .tokens = size.tokens,
            .trained = encoding_.chat ? std::optional(size.trained) : std::nullopt,
            .chat = encoding_.chat ? std::string(encoding_.chat->name) : std::string(),
            .vocab = tokenizer_.vocab(),
            .tokenizer = encoding_.tokenizer,
            .tokenizer_sha256 = encoding_.tokenizer_sha256};
  }

  void work() {
    try {
      BatchEncoder encoder(tokenizer_, encoding_);
      for (;;) {
        std::int64_t number = 0;
        const std::optional<CorpusBatch> batch = take_batch(number);
        if (!batch || !write_in_turn(number, encoder.encode(*batch))) return;
      }
    } catch (...) {
      const std::lock_guard lock(turn_mutex_);
      if (!failure_) failure_ = std::current_exception();
      turn_changed_.notify_all();
    }
  }

  std::optional<CorpusBatch> take_batch(std::int64_t& number) {
    const std::lock_guard lock(reader_mutex_);
    number = next_++;
    return reader_.next();
  }

  /// Writes a batch when all batches with lower numbers are written. Returns false if another worker has failed.
  bool write_in_turn(std::int64_t number, const EncodedBatch& batch) {
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
    state_.replaced.add(batch.replaced);
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
  EncodingState state_;
  std::vector<MegatronWriter> writers_;
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
  require_usage(encoding.threads > 0, "cannot encode with {} threads: at least one is needed", encoding.threads);
  const std::optional<EncodingState> kept = read_journal(encoding, tokenizer.vocab());
  // Otherwise, after an interruption, a journal of another encoding could be applied to the files of this one.
  std::error_code ignored;
  if (!kept) std::filesystem::remove(journal_path(encoding.train), ignored);
  const EncodingState begin = kept.value_or(EncodingState{});
  const EncodingState end = OrderedEncoding(tokenizer, encoding, begin).run();
  std::filesystem::remove(journal_path(encoding.train), ignored);
  return {.train = end.size[0],
          .valid = end.size[1],
          .skipped = end.skipped,
          .replaced = end.replaced,
          .resumed_text = begin.size[0].bytes + begin.size[1].bytes};
}

}  // namespace lyceum
