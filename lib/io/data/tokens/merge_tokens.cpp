#include "io/data/tokens/merge_tokens.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_formats.h"
#include "io/data/tokens/token_source.h"

namespace lyceum {

namespace {

constexpr std::int64_t most_read_tokens = std::int64_t{1} << 22;

/// Throws a usage Error if two of the prefixes, or one and `output`, refer to the same files.
void require_different_files(std::span<const std::string> prefixes, const std::string& output) {
  const auto same = [](const std::string& one, const std::string& other) {
    std::error_code absent;
    return one == other || std::filesystem::equivalent(token_path(one), token_path(other), absent);
  };
  for (std::size_t i = 0; i < prefixes.size(); ++i) {
    require_usage(!same(prefixes[i], output), "{} is both merged and written: write to another prefix", prefixes[i]);
    for (std::size_t j = 0; j < i; ++j) {
      require_usage(!same(prefixes[i], prefixes[j]), "{} and {} are the same token files: merge each once", prefixes[j],
                    prefixes[i]);
    }
  }
}

/// Adds the description of a source to that of the sources before it. `first`: the prefix of the first source.
void add_meta(TokenMeta& sum, const TokenMeta& meta, const std::string& first, const std::string& prefix) {
  require_input(
      meta.tokenizer_sha256 == sum.tokenizer_sha256 && meta.vocab == sum.vocab,
      "{} was encoded with {} of SHA-256 {}…, but {} with {} of {}…: only files of one tokenizer can be merged", prefix,
      meta.tokenizer, meta.tokenizer_sha256.substr(0, 12), first, sum.tokenizer, sum.tokenizer_sha256.substr(0, 12));
  require_input(meta.chat.empty() || sum.chat.empty() || meta.chat == sum.chat,
                "{} has chats in the format {}, the files before it in {}: only chats of one format can be merged",
                prefix, meta.chat, sum.chat);
  if (sum.chat.empty()) sum.chat = meta.chat;
  sum.bytes += meta.bytes;
  sum.documents += meta.documents;
  sum.tokens += meta.tokens;
}

/// Returns the sum of the descriptions of the sources, without `trained`; nothing if none has one.
std::optional<TokenMeta> merged_meta(std::span<const std::string> prefixes) {
  std::optional<TokenMeta> sum;
  for (const std::string& prefix : prefixes) {
    const std::optional<TokenMeta> meta = read_token_meta(prefix);
    require_input(&prefix == prefixes.data() || meta.has_value() == sum.has_value(),
                  "{} is missing, although other sources have a description, so it is not known whether {} was encoded "
                  "with the same tokenizer",
                  meta_path(meta ? prefixes.front() : prefix), meta ? prefixes.front() : prefix);
    if (!meta) continue;
    const std::shared_ptr<const TokenSource> source = open_tokens(prefix);
    require_input(meta->tokens == source->tokens() && meta->documents == source->documents(),
                  "{} describes {} documents with {} tokens, but {} has {} with {}: copy them again, or tokenise again",
                  meta_path(prefix), meta->documents, meta->tokens, source->path(), source->documents(),
                  source->tokens());
    if (sum) {
      add_meta(*sum, *meta, prefixes.front(), prefix);
    } else {
      sum = meta;
    }
  }
  if (sum) sum->trained.reset();
  return sum;
}

/// Reads the tokens of consecutive ranges in large blocks.
class TokenBlocks {
 public:
  explicit TokenBlocks(const TokenSource& source) : source_(source) {}
  /// Returns tokens [first, first + count), count ≤ most_read_tokens, until the next call.
  std::span<const std::int32_t> at(std::int64_t first, std::int64_t count) {
    if (first < first_ || first + count > first_ + std::ssize(tokens_)) {
      first_ = first;
      tokens_.resize(static_cast<std::size_t>(std::min(most_read_tokens, source_.tokens() - first)));
      source_.read(first, tokens_);
    }
    return std::span(tokens_).subspan(static_cast<std::size_t>(first - first_), static_cast<std::size_t>(count));
  }

 private:
  const TokenSource& source_;
  std::int64_t first_ = 0;
  std::vector<std::int32_t> tokens_;
};

/// Returns a size of the vocabulary that all tokens of the sources are below.
std::int64_t vocab_of_tokens(std::span<const std::string> prefixes) {
  std::int64_t most = 0;
  for (const std::string& prefix : prefixes) {
    const std::shared_ptr<const TokenSource> source = open_tokens(prefix);
    TokenBlocks blocks(*source);
    for (std::int64_t at = 0; at < source->tokens(); at += most_read_tokens) {
      const auto tokens = blocks.at(at, std::min(most_read_tokens, source->tokens() - at));
      const auto [least, largest] = std::ranges::minmax(tokens);
      require_input(least >= 0, "{}: token {} is negative", source->path(), least);
      most = std::max<std::int64_t>(most, largest);
    }
  }
  return most + 1;
}

/// Adds all documents of a source to the merged files. Returns the number of tokens that are trained.
std::int64_t append(MegatronWriter& writer, const TokenSource& source) {
  TokenBlocks blocks(source);
  std::vector<std::uint8_t> trained;
  std::int64_t sum = 0;
  const auto add = [&](std::int64_t first, std::int64_t count, bool ends_document) {
    std::optional<std::span<const std::uint8_t>> mask;
    if (source.has_mask()) {
      trained.resize(static_cast<std::size_t>(count));
      source.read_trained(first, trained);
      mask = trained;
    }
    sum += mask ? std::count(trained.begin(), trained.end(), std::uint8_t{1}) : count;
    writer.add_sequence(blocks.at(first, count), mask, ends_document);
  };
  std::int64_t begin = -1;  // of the current document
  source.for_document_begins([&](std::span<const std::int64_t> begins) {
    for (const std::int64_t next : begins) {
      std::int64_t at = begin;
      if (begin >= 0) {
        for (; next - at > most_read_tokens; at += most_read_tokens) add(at, most_read_tokens, false);
        add(at, next - at, true);
      }
      begin = next;
    }
  });
  return sum;
}

}  // namespace

MergedTokens merge_tokens(std::span<const std::string> prefixes, const std::string& output) {
  require_usage(!prefixes.empty(), "there are no token files to merge into {}", output);
  require_different_files(prefixes, output);
  MergedTokens merged{.meta = merged_meta(prefixes)};
  MegatronWriter writer(output, merged.meta ? merged.meta->vocab : vocab_of_tokens(prefixes));
  std::int64_t trained = 0;
  bool masked = false;
  for (const std::string& prefix : prefixes) {
    const std::shared_ptr<const TokenSource> source = open_tokens(prefix);
    trained += append(writer, *source);
    masked = masked || source->has_mask();
    merged.documents += source->documents();
    merged.tokens += source->tokens();
  }
  if (merged.meta && masked) merged.meta->trained = trained;
  writer.finish(merged.meta);
  return merged;
}

}  // namespace lyceum
