#include <algorithm>
#include <filesystem>
#include <limits>
#include <mutex>

#include "core/error.h"
#include "io/data/tokens/megatron_index.h"
#include "io/data/tokens/token_source.h"
#include "io/files/input_file.h"
#include "io/files/sha256.h"

namespace lyceum {

namespace {

/// Calls `f.template operator()<T>()` with the integer type that the index names.
template <class F>
decltype(auto) dispatch_tokens(const token_format::Type& type, F&& f) {
  switch (type.code) {
    case 1: return f.template operator()<std::uint8_t>();
    case 2: return f.template operator()<std::int8_t>();
    case 3: return f.template operator()<std::int16_t>();
    case 4: return f.template operator()<std::int32_t>();
    case 5: return f.template operator()<std::int64_t>();
    case 8: return f.template operator()<std::uint16_t>();
    default: fail(ExitCode::failed, "{} is not a type of tokens", type.name);
  }
}

/// Adds a file's size and enough of it to distinguish it from others: up to `most_blocks`, spread evenly from its first
/// byte to its last.
void add_sample(Sha256& digest, const InputFile& file) {
  constexpr std::uint64_t block_bytes = 4096, most_blocks = 256;
  const std::uint64_t size = file.size();
  digest.update(std::as_bytes(std::span(&size, 1)));
  const bool whole = size <= block_bytes * most_blocks;
  std::vector<std::byte> block(whole ? size : block_bytes);
  for (std::uint64_t i = 0; i < (whole ? 1 : most_blocks); ++i) {
    // The product would overflow only for files of 2^56 bytes.
    file.read(i * (size - block.size()) / (most_blocks - 1), block);
    digest.update(block);
  }
}

}  // namespace

struct TokenFile::Implementation {
  std::string prefix;
  InputFile bin;
  TokenIndex index;
  std::int64_t tokens;
  std::optional<InputFile> mask;
  mutable std::once_flag largest_known;
  mutable std::int64_t largest = 0;

  explicit Implementation(const std::string& prefix)
      : prefix(prefix),
        bin(prefix + ".bin", "name the prefix of a .bin and an .idx file, or create them with `lyceum tokenize`"),
        index(prefix, bin.size()),
        tokens(static_cast<std::int64_t>(bin.size() / index.type().bytes)) {
    open_mask();
  }

  void open_mask() {
    const std::string path = prefix + ".mask";
    std::error_code absent;
    if (!std::filesystem::exists(path, absent)) {
      const std::optional<TokenMeta> meta = read_token_meta(prefix);
      require_input(
          !meta || !meta->trained,
          "{} is missing, and according to {}.json only {} of {} tokens are trained: copy it too, or tokenise again",
          path, prefix, meta && meta->trained ? *meta->trained : 0, tokens);
      return;
    }
    mask.emplace(path, "copy it again, or tokenise again");
    require_input(mask->size() == static_cast<std::uint64_t>(tokens),
                  "{} has {} bytes, but needs one for each of the {} tokens of {}: one of the two is truncated or "
                  "belongs to another; copy both again",
                  path, mask->size(), tokens, bin.path());
  }

  template <class T>
  void copy(std::int64_t first, std::span<std::int32_t> out) const {
    std::vector<T> values(out.size());
    bin.read_values(static_cast<std::uint64_t>(first) * sizeof(T), std::span(values));
    bool fits = true;
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::int32_t>(values[i]);
      fits &= static_cast<T>(out[i]) == values[i];
    }
    if (fits) return;
    for (std::size_t i = 0; i < out.size(); ++i) {
      require_input(static_cast<T>(out[i]) == values[i], "{}: token {} at position {} exceeds 32 bits", bin.path(),
                    static_cast<std::int64_t>(values[i]), first + static_cast<std::int64_t>(i));
    }
  }
};

TokenFile::TokenFile(const std::string& prefix) : implementation_(std::make_unique<Implementation>(prefix)) {}
TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;

std::int64_t TokenFile::tokens() const { return implementation_->tokens; }
std::int64_t TokenFile::sequences() const { return implementation_->index.sequences(); }
std::int64_t TokenFile::documents() const { return implementation_->index.documents(); }
std::int64_t TokenFile::document_begin(std::int64_t d) const { return implementation_->index.document_begin(d); }
std::vector<std::int64_t> TokenFile::document_begins() const { return implementation_->index.document_begins(); }

std::vector<std::int64_t> TokenFile::document_begins(std::int64_t first, std::int64_t end) const {
  std::int64_t low = 0, high = documents();  // the first document that begins at `first` or behind
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (document_begin(middle) < first) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  std::vector<std::int64_t> begins;
  for (; low < documents(); ++low) {
    const std::int64_t begin = document_begin(low);
    if (begin >= end) break;
    if (begins.empty() || begins.back() != begin) begins.push_back(begin);
  }
  return begins;
}

const std::string& TokenFile::prefix() const { return implementation_->prefix; }

void TokenFile::require_within(std::int64_t first, std::int64_t count) const {
  require(first >= 0 && count <= tokens() && first <= tokens() - count, "tokens {} to {} of {}, which holds {}", first,
          first + count, implementation_->bin.path(), tokens());
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  require_within(first, std::ssize(out));
  dispatch_tokens(implementation_->index.type(), [&]<class T>() { implementation_->copy<T>(first, out); });
}

bool TokenFile::has_mask() const { return implementation_->mask.has_value(); }

void TokenFile::read_trained(std::int64_t first, std::span<std::uint8_t> out) const {
  require_within(first, std::ssize(out));
  if (!has_mask()) {
    std::ranges::fill(out, std::uint8_t{1});
    return;
  }
  const InputFile& mask = *implementation_->mask;
  mask.read_values(static_cast<std::uint64_t>(first), out);
  const auto wrong = std::ranges::find_if(out, [](std::uint8_t value) { return value > 1; });
  require_input(wrong == out.end(), "{}: byte {} is {}, must be 0 or 1; write the file again", mask.path(),
                first + (wrong - out.begin()), wrong == out.end() ? 0 : *wrong);
}

std::string TokenFile::fingerprint() const {
  Sha256 digest;
  add_sample(digest, implementation_->bin);
  add_sample(digest, implementation_->index.file());
  if (has_mask()) add_sample(digest, *implementation_->mask);
  return digest.finish();
}

std::int64_t TokenFile::largest_token() const {
  const Implementation& file = *implementation_;
  std::call_once(file.largest_known, [&] {
    dispatch_tokens(file.index.type(), [&]<class T>() {
      T largest = std::numeric_limits<T>::min();
      FileValues<T> token(file.bin, 0, file.tokens);
      for (std::int64_t i = 0; i < file.tokens; ++i) largest = std::max(largest, token[i]);
      file.largest = static_cast<std::int64_t>(largest);
    });
  });
  return file.largest;
}

}  // namespace lyceum
