#include "io/token_index.h"

#include <algorithm>

#include "core/error.h"

namespace lyceum {

namespace {

constexpr std::size_t length_bytes = 4, offset_bytes = 8, boundary_bytes = 8;

}  // namespace

TokenIndex::TokenIndex(const std::string& prefix, std::uint64_t bin_bytes)
    : file_(prefix + ".idx", "a token file is PREFIX.bin and PREFIX.idx, as `lyceum tokenize` writes them"),
      bin_(prefix + ".bin"),
      bin_bytes_(static_cast<std::int64_t>(bin_bytes)) {
  read_header();
  check_lengths();
  check_documents();
}

void TokenIndex::read_header() {
  using namespace token_format;
  const std::string& path = file_.path();
  const std::size_t compared = std::min(file_.size(), magic.size());
  require_input(compared > 0 && std::memcmp(file_.data(), magic.data(), compared) == 0,
                "{} is no Megatron index: it does not begin with MMIDIDX", path);
  require_input(file_.size() >= header_bytes, "{} is cut short: {} bytes, the header alone has {}; copy it again", path,
                file_.size(), header_bytes);
  std::size_t at = magic.size();
  const auto found_version = file_.get<std::uint64_t>(at);
  require_input(found_version == version, "{} has version {}; only version {} can be read", path, found_version,
                version);
  const auto code = file_.get<std::uint8_t>(at += 8);
  type_ = std::ranges::find(types, code, &Type::code);
  require_input(type_ != types.end(), "{} has tokens of the unknown type {}; known are 1 to 8", path, code);
  require_input(type_->integer, "{} has tokens of type {}; tokens must be integers", path, type_->name);
  const auto sequences = file_.get<std::uint64_t>(at += 1), boundaries = file_.get<std::uint64_t>(at += 8);
  // Bounding both by the file first keeps the product below from wrapping.
  const std::uint64_t size = file_.size();
  const bool possible = sequences <= size && boundaries <= size;
  const std::uint64_t expected = header_bytes + sequences * (length_bytes + offset_bytes) + boundaries * boundary_bytes;
  require_input(possible && expected == size,
                "{} has {} bytes, but its {} sequences and {} document boundaries need {}; copy it again", path, size,
                sequences, boundaries, possible ? expected : sequences);
  sequences_ = static_cast<std::int64_t>(sequences);
  boundaries_ = static_cast<std::int64_t>(boundaries);
  require_input(sequences_ > 0 && bin_bytes_ > 0, "{} holds no tokens: {} sequences, {} bytes in {}", path, sequences_,
                bin_bytes_, bin_);
}

std::int64_t TokenIndex::length(std::int64_t sequence) const {
  return file_.get<std::int32_t>(token_format::header_bytes + static_cast<std::size_t>(sequence) * length_bytes);
}

std::int64_t TokenIndex::offset(std::int64_t sequence) const {
  const std::size_t begin = token_format::header_bytes + static_cast<std::size_t>(sequences_) * length_bytes;
  return file_.get<std::int64_t>(begin + static_cast<std::size_t>(sequence) * offset_bytes);
}

std::int64_t TokenIndex::boundary(std::int64_t document) const {
  const std::size_t begin =
      token_format::header_bytes + static_cast<std::size_t>(sequences_) * (length_bytes + offset_bytes);
  return file_.get<std::int64_t>(begin + static_cast<std::size_t>(document) * boundary_bytes);
}

// One branch-free pass that says whether anything is wrong; what it is is looked up only then. 10^8 sequences take
// less than a second.
void TokenIndex::check_lengths() const {
  const auto bytes = static_cast<std::int64_t>(type_->bytes);
  std::int64_t total = 0;
  std::int64_t negative = 0;
  for (std::int64_t s = 0; s < sequences_; ++s) {
    total += length(s);
    negative |= length(s);
  }
  const std::string& path = file_.path();
  if (negative < 0) {
    std::int64_t s = 0;
    while (length(s) >= 0) ++s;
    fail(ExitCode::bad_input, "{}: sequence {} has the length {}; write the file again", path, s, length(s));
  }
  require_input(
      total * bytes == bin_bytes_,
      "{} has {} bytes, but {} speaks of {} tokens of {} bytes, which is {} bytes: one of the two is cut short "
      "or belongs to another; copy both again",
      bin_, bin_bytes_, path, total, bytes, total * bytes);
  bool wrong = offset(0) != 0;
  const auto step = [&](std::int64_t s) {  // unsigned: the offsets may be anything
    return static_cast<std::uint64_t>(offset(s + 1)) - static_cast<std::uint64_t>(offset(s));
  };
  for (std::int64_t s = 0; s + 1 < sequences_; ++s) wrong |= step(s) != static_cast<std::uint64_t>(length(s) * bytes);
  if (!wrong) return;
  std::int64_t expected = 0;
  for (std::int64_t s = 0; s < sequences_; expected += length(s) * bytes, ++s) {
    require_input(offset(s) == expected, "{}: sequence {} begins at byte {} instead of {}; write the file again", path,
                  s, offset(s), expected);
  }
}

void TokenIndex::check_documents() const {
  const std::string& path = file_.path();
  require_input(boundaries_ >= 2, "{} has {} document boundaries, at least 2 are needed; write the file again", path,
                boundaries_);
  require_input(boundary(0) == 0 && boundary(boundaries_ - 1) == sequences_,
                "{}: documents reach from sequence {} to {} instead of from 0 to {}; write the file again", path,
                boundary(0), boundary(boundaries_ - 1), sequences_);
  bool falls = false;
  for (std::int64_t d = 0; d + 1 < boundaries_; ++d) falls |= boundary(d + 1) < boundary(d);
  if (!falls) return;
  std::int64_t d = 0;
  while (boundary(d + 1) >= boundary(d)) ++d;
  fail(ExitCode::bad_input, "{}: document {} begins at sequence {}, before document {} at {}; write the file again",
       path, d + 1, boundary(d + 1), d, boundary(d));
}

std::int64_t TokenIndex::document_begin(std::int64_t d) const {
  require(d >= 0 && d <= documents(), "document {} of {} in {}", d, documents(), file_.path());
  const std::int64_t sequence = boundary(d);
  const std::int64_t bytes = sequence == sequences_ ? bin_bytes_ : offset(sequence);
  return bytes / static_cast<std::int64_t>(type_->bytes);
}

}  // namespace lyceum
