#include "io/data/tokens/token_source.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "io/data/tokens/token_meta.h"

namespace lyceum {

std::string mask_path(const std::string& prefix) { return prefix + ".mask"; }

void TokenSource::open_mask() {
  const std::string mask = mask_path(prefix_);
  std::error_code absent;
  if (!std::filesystem::exists(mask, absent)) {
    const std::optional<TokenMeta> meta = read_token_meta(prefix_);
    require_input(!meta || !meta->trained,
                  "{} is missing, and according to {} only {} of {} tokens are trained: copy it too, or tokenise again",
                  mask, meta_path(prefix_), meta && meta->trained ? *meta->trained : 0, tokens());
    return;
  }
  mask_.emplace(mask, "copy it again, or tokenise again");
  require_input(mask_->size() == static_cast<std::uint64_t>(tokens()),
                "{} has {} bytes, but needs one for each of the {} tokens of {}: one of the two is truncated or "
                "belongs to another data set; copy both again",
                mask, mask_->size(), tokens(), path());
}

std::vector<std::int64_t> TokenSource::document_begins(std::int64_t first, std::int64_t end) const {
  std::int64_t low = 0, high = documents();  // binary search for the first document that begins at or after `first`
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

void TokenSource::require_within(std::int64_t first, std::int64_t count) const {
  const std::int64_t all = tokens();
  require(first >= 0 && count <= all && first <= all - count, "tokens {} to {} are not in {}, which has {}", first,
          first + count, path(), all);
}

void TokenSource::read(std::int64_t first, std::span<std::int32_t> out) const {
  require_within(first, std::ssize(out));
  copy_tokens(first, out);
}

void TokenSource::read_trained(std::int64_t first, std::span<std::uint8_t> out) const {
  require_within(first, std::ssize(out));
  if (!mask_) {
    std::ranges::fill(out, std::uint8_t{1});
    return;
  }
  mask_->read_values(static_cast<std::uint64_t>(first), out);
  const auto wrong = std::ranges::find_if(out, [](std::uint8_t value) { return value > 1; });
  require_input(wrong == out.end(), "{}: byte {} is {}, must be 0 or 1; write the file again", mask_->path(),
                first + (wrong - out.begin()), wrong == out.end() ? 0 : *wrong);
}

std::string TokenSource::fingerprint() const {
  Sha256 digest;
  add_contents(digest);
  if (mask_) add_sample(digest, *mask_);
  return digest.finish();
}

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

}  // namespace lyceum
