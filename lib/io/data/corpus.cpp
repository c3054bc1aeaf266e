#include "io/data/corpus.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "core/error.h"
#include "core/random.h"
#include "io/data/token_data.h"
#include "io/files/whole_file.h"

namespace lyceum {

std::vector<TextDocument> whole_documents(std::span<const std::filesystem::path> files) {
  std::vector<TextDocument> documents;
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(file, error);
    require_input(!error, "{} cannot be read: {}", file.native(), error.message());
    documents.push_back({file, 0, static_cast<std::int64_t>(size)});
  }
  return documents;
}

std::int64_t bytes_of(std::span<const TextDocument> documents) {
  return std::accumulate(documents.begin(), documents.end(), std::int64_t{0},
                         [](std::int64_t sum, const TextDocument& document) { return sum + document.bytes; });
}

namespace {

/// Cuts the last `wanted` bytes off a document, or a little less, so that the cut follows a newline; with none at hand
/// it is between two characters.
TextDocument cut_end(TextDocument& document, std::int64_t wanted) {
  constexpr std::int64_t searched = 1 << 16;
  const std::int64_t cut = document.bytes - wanted;
  const std::string text = read_part_of_file(document.file, document.begin + cut, std::min(wanted, searched));
  std::size_t skipped = text.find('\n') + 1;  // npos + 1 is 0
  while (skipped < text.size() && (static_cast<unsigned char>(text[skipped]) & 0xC0u) == 0x80u) ++skipped;
  const std::int64_t kept = cut + static_cast<std::int64_t>(skipped);
  const TextDocument end{document.file, document.begin + kept, document.bytes - kept};
  document.bytes = kept;
  return end;
}

}  // namespace

DocumentChoice choose_documents(std::vector<TextDocument> documents, std::int64_t bytes, std::uint64_t seed,
                                std::string_view purpose) {
  const auto draw = [&](const TextDocument& document) {
    return Philox(seed, std::string(purpose) + "/" + document.file.native())
        .uniform(static_cast<std::uint64_t>(document.begin));
  };
  std::vector<std::pair<double, std::size_t>> draws;
  for (std::size_t i = 0; i < documents.size(); ++i) draws.emplace_back(draw(documents[i]), i);
  std::ranges::sort(draws);
  std::vector<bool> is_chosen(documents.size());
  std::int64_t sum = 0;
  for (const auto& [value, i] : draws) {
    if (documents[i].bytes > bytes - sum) continue;
    is_chosen[i] = true;
    sum += documents[i].bytes;
  }
  DocumentChoice choice;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    (is_chosen[i] ? choice.chosen : choice.rest).push_back(std::move(documents[i]));
  }
  if (2 * sum >= bytes || choice.rest.empty()) return choice;
  // Whatever is left did not fit, so it is larger than what is still wanted.
  TextDocument end = cut_end(*std::ranges::max_element(choice.rest, {}, &TextDocument::bytes), bytes - sum);
  if (end.bytes > 0) choice.chosen.push_back(std::move(end));
  return choice;
}

namespace {

/// Workers take documents by number and hand them in by number.
class OrderedEncoding {
 public:
  OrderedEncoding(const Tokenizer& tokenizer, std::span<const TextDocument> documents, TokenFileWriter& writer,
                  const std::function<void(std::int64_t)>& progress)
      : tokenizer_(tokenizer), documents_(documents), writer_(writer), progress_(progress) {}

  EncodedSize run(int threads) {
    {
      std::vector<std::jthread> workers;
      for (int t = 0; t < threads; ++t) workers.emplace_back([this] { work(); });
    }
    if (failure_) std::rethrow_exception(failure_);
    return done_;
  }

 private:
  void work() {
    try {
      TextEncoder encoder(tokenizer_);
      std::vector<std::int32_t> tokens;
      for (std::size_t i; (i = take()) < documents_.size();) {
        const TextDocument& document = documents_[i];
        const std::string text = read_part_of_file(document.file, document.begin, document.bytes);
        tokens.clear();
        encoder.encode(text, tokens);
        tokens.push_back(tokenizer_.end_of_document());
        if (!hand_in(i, text.size(), tokens)) return;
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      turn_changed_.notify_all();
    }
  }

  std::size_t take() {
    const std::lock_guard lock(mutex_);
    return next_++;
  }

  /// False when another worker has failed.
  bool hand_in(std::size_t i, std::size_t bytes, std::span<const std::int32_t> tokens) {
    std::unique_lock lock(mutex_);
    turn_changed_.wait(lock, [&] { return turn_ == i || failure_; });
    if (failure_) return false;
    writer_.add_document(tokens);
    done_.documents += 1;
    done_.bytes += static_cast<std::int64_t>(bytes);
    done_.tokens += static_cast<std::int64_t>(tokens.size());
    if (progress_) progress_(done_.bytes);
    ++turn_;
    turn_changed_.notify_all();
    return true;
  }

  const Tokenizer& tokenizer_;
  std::span<const TextDocument> documents_;
  TokenFileWriter& writer_;
  const std::function<void(std::int64_t)>& progress_;
  std::mutex mutex_;
  std::condition_variable turn_changed_;
  std::size_t next_ = 0, turn_ = 0;
  EncodedSize done_;
  std::exception_ptr failure_;
};

}  // namespace

EncodedSize encode_documents(const Tokenizer& tokenizer, std::span<const TextDocument> documents,
                             const std::string& prefix, int threads,
                             const std::function<void(std::int64_t)>& progress) {
  require_usage(threads > 0, "encoding with {} threads: at least one is needed", threads);
  TokenFileWriter writer(prefix, tokenizer.vocab());
  const EncodedSize size = OrderedEncoding(tokenizer, documents, writer, progress).run(threads);
  writer.finish();
  return size;
}

}  // namespace lyceum
