#include "io/data/tokens/megatron_index.h"

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace lyceum {

namespace {

constexpr std::size_t length_bytes = 4, offset_bytes = 8, boundary_bytes = 8;

}  // namespace

MegatronIndex::MegatronIndex(const std::string& prefix, std::uint64_t bin_bytes)
    : file_(prefix + megatron::index_ending,
            "a token file is PREFIX.bin and PREFIX.idx, as `lyceum tokenize` writes them"),
      bin_(prefix + megatron::tokens_ending),
      bin_bytes_(static_cast<std::int64_t>(bin_bytes)) {
  read_header();
  check_lengths();
  check_documents();
}

void MegatronIndex::read_header() {
  using namespace megatron;
  const std::string& path = file_.path();
  std::string beginning(std::min<std::size_t>(file_.size(), magic.size()), '\0');
  file_.read_values(0, std::span(beginning));
  require_input(!beginning.starts_with("TNTIDX"),
                "{} is an index in the older format TNTIDX: write the data again with --dataset-impl mmap", path);
  require_input(!beginning.empty() && magic.starts_with(beginning),
                "{} is not a Megatron index: it does not begin with MMIDIDX", path);
  require_input(file_.size() >= header_bytes, "{} is truncated: {} bytes, the header alone has {}; copy it again", path,
                file_.size(), header_bytes);
  std::size_t at = magic.size();
  const auto found_version = file_.get<std::uint64_t>(at);
  require_input(found_version == version, "{} has version {}; only version {} can be read", path, found_version,
                version);
  const auto code = file_.get<std::uint8_t>(at = code_at);
  type_ = std::ranges::find(types, code, &Type::code);
  require_input(type_ != types.end(), "{} has tokens of the unknown type {}; types are 1 to 8", path, code);
  const auto sequences = file_.get<std::uint64_t>(at += 1), boundaries = file_.get<std::uint64_t>(at += 8);
  // Both counts are compared with the size of the file first, so that the sum below cannot overflow.
  const std::uint64_t size = file_.size();
  const bool possible = sequences <= size && boundaries <= size;
  const std::uint64_t expected = header_bytes + sequences * (length_bytes + offset_bytes) + boundaries * boundary_bytes;
  require_input(!possible || sequences == 0 || expected + sequences != size,
                "{} is the index of a multimodal data set, which ends with a mode for each of its {} sequences: Lyceum "
                "trains on text alone, write it without modes",
                path, sequences);
  require_input(possible && expected == size,
                "{} has {} bytes, but its {} sequences and {} document boundaries need {}; copy it again", path, size,
                sequences, boundaries, possible ? expected : sequences);
  sequences_ = static_cast<std::int64_t>(sequences);
  boundaries_ = static_cast<std::int64_t>(boundaries);
  require_input(sequences_ > 0 && bin_bytes_ > 0, "{} contains no tokens: {} sequences, {} bytes in {}", path,
                sequences_, bin_bytes_, bin_);
}

FileValues<std::int32_t> MegatronIndex::lengths() const { return {file_, megatron::header_bytes, sequences_}; }

FileValues<std::int64_t> MegatronIndex::offsets() const { return {file_, offsets_begin(), sequences_}; }

FileValues<std::int64_t> MegatronIndex::boundaries() const { return {file_, boundaries_begin(), boundaries_}; }

std::size_t MegatronIndex::offsets_begin() const {
  return megatron::header_bytes + static_cast<std::size_t>(sequences_) * length_bytes;
}

std::size_t MegatronIndex::boundaries_begin() const {
  return offsets_begin() + static_cast<std::size_t>(sequences_) * offset_bytes;
}

void MegatronIndex::check_lengths() const {
  const std::string& path = file_.path();
  const auto bytes = static_cast<std::int64_t>(type_->bytes);
  FileValues<std::int32_t> length = lengths();
  std::int64_t total = 0;
  for (std::int64_t s = 0; s < sequences_; ++s) {
    require_input(length[s] >= 0, "{}: sequence {} has the length {}; write the file again", path, s, length[s]);
    total += length[s];
  }
  const auto other = std::ranges::find(megatron::deepspeed_types, type_->code, &megatron::DeepSpeedType::code);
  if (other != megatron::deepspeed_types.end() && total * other->bytes == bin_bytes_) {
    const auto same = std::ranges::find(megatron::types, other->megatron_code, &megatron::Type::code);
    fail(ExitCode::bad_input,
         "{}: type {} with {} bytes per token is DeepSpeed's {} (for Megatron, it is {}): set byte {} of the file to "
         "{}, Megatron's {}",
         path, other->code, other->bytes, other->name, type_->name, megatron::code_at, other->megatron_code,
         same->name);
  }
  require_input(type_->integer, "{} has tokens of type {}; tokens must be integers", path, type_->name);
  require_input(
      total * bytes == bin_bytes_,
      "{} has {} bytes, but {} describes {} tokens of {} bytes, which is {} bytes: one of the two is truncated "
      "or belongs to another data set; copy both again",
      bin_, bin_bytes_, path, total, bytes, total * bytes);
  FileValues<std::int64_t> offset = offsets();
  std::int64_t expected = 0;
  for (std::int64_t s = 0; s < sequences_; expected += length[s] * bytes, ++s) {
    require_input(offset[s] == expected, "{}: sequence {} begins at byte {} instead of {}; write the file again", path,
                  s, offset[s], expected);
  }
}

void MegatronIndex::check_documents() const {
  const std::string& path = file_.path();
  require_input(boundaries_ >= 2, "{} has {} document boundaries, needs at least 2; write the file again", path,
                boundaries_);
  FileValues<std::int64_t> first = boundaries(), next = boundaries();
  const std::int64_t last = next[documents()];
  require_input(first[0] == 0 && last == sequences_,
                "{}: documents extend from sequence {} to {} instead of from 0 to {}; write the file again", path,
                first[0], last, sequences_);
  for (std::int64_t d = 0; d < documents(); ++d) {
    require_input(next[d + 1] >= first[d],
                  "{}: document {} begins at sequence {}, before document {} at {}; write the file again", path, d + 1,
                  next[d + 1], d, first[d]);
  }
}

std::int64_t MegatronIndex::document_begin(std::int64_t d) const {
  require(d >= 0 && d <= documents(), "document {} of {} in {}", d, documents(), file_.path());
  const std::int64_t sequence =
      file_.get<std::int64_t>(boundaries_begin() + static_cast<std::size_t>(d) * boundary_bytes);
  const std::int64_t bytes =
      sequence == sequences_
          ? bin_bytes_
          : file_.get<std::int64_t>(offsets_begin() + static_cast<std::size_t>(sequence) * offset_bytes);
  return bytes / static_cast<std::int64_t>(type_->bytes);
}

void MegatronIndex::for_document_begins(const std::function<void(std::span<const std::int64_t>)>& each) const {
  constexpr std::size_t block_numbers = 1 << 13;
  FileValues<std::int64_t> first = boundaries(), offset = offsets();
  std::vector<std::int64_t> begins;
  begins.reserve(block_numbers);
  for (std::int64_t d = 0; d <= documents(); ++d) {
    const std::int64_t bytes = first[d] == sequences_ ? bin_bytes_ : offset[first[d]];
    begins.push_back(bytes / static_cast<std::int64_t>(type_->bytes));
    if (begins.size() < block_numbers && d < documents()) continue;
    each(begins);
    begins.clear();
  }
}

}  // namespace lyceum
