#include "io/data/loader/packing_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "core/error.h"
#include "io/files/sha256.h"

namespace lyceum {

namespace {

using Digest = std::array<char, 64>;  // hexadecimal digits
constexpr std::array<char, 16> magic{'l', 'y', 'c', 'e', 'u', 'm', ' ', 'p', 'a', 'c', 'k', 'i', 'n', 'g', ' ', '1'};

struct Footer {
  std::array<char, 16> magic;
  Digest key;
  PackingCounts counts;
  Digest check;  // SHA-256 of the members before it
};
static_assert(sizeof(Footer) == sizeof(magic) + 2 * sizeof(Digest) + 6 * sizeof(std::int64_t));

Digest digest_of(const std::string& text) {
  Digest digest{};
  std::copy_n(text.begin(), std::min(text.size(), digest.size()), digest.begin());
  return digest;
}

Digest check_of(const Footer& footer) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(&footer, 1)).first(offsetof(Footer, check)));
  return digest_of(digest.finish());
}

constexpr std::uint64_t span_bytes = sizeof(TokenSpan), first_bytes = sizeof(std::int64_t);
static_assert(span_bytes == 16);

std::uint64_t firsts_begin(const PackingCounts& counts) {
  return span_bytes * static_cast<std::uint64_t>(counts.spans);
}

}  // namespace

std::int64_t most_packing_bytes(std::int64_t spans) {
  // The file has up to one sequence per span; the temporary file has a number per span.
  return spans * static_cast<std::int64_t>(span_bytes + 2 * first_bytes) +
         static_cast<std::int64_t>(sizeof(Footer) + first_bytes);
}

void write_packing_file(PartialFile& out, const PackingRequest& request) {
  constexpr std::int64_t block_spans = 1 << 24, most_blocks = 16;
  PartialFile placements(out.path() + ".placements");
  const PlacementStore store{.append = [&](auto sequences) { placements.write_values(sequences); },
                             .read =
                                 [&](std::int64_t first, auto sequences) {
                                   if (first == 0) placements.flush();
                                   placements.read_values(first * static_cast<std::int64_t>(first_bytes), sequences);
                                 }};
  const std::vector<std::int64_t> firsts =
      pack_spans(request, store, std::max(block_spans, request.survey.spans / most_blocks),
                 [&](std::span<const TokenSpan> spans) { out.write_values(spans); });
  out.write_values(std::span(firsts));
  Footer footer{.magic = magic,
                .key = digest_of(request.survey.key),
                .counts = counts_of(request, std::ssize(firsts) - 1),
                .check = {}};
  footer.check = check_of(footer);
  out.write_value(footer);
}

std::optional<PackingCounts> packing_counts(const InputFile& file, const PackingRequest& request) {
  if (file.size() < sizeof(Footer)) return {};
  const auto footer = file.get<Footer>(file.size() - sizeof(Footer));
  const PackingCounts& counts = footer.counts;
  if (footer.magic != magic || footer.key != digest_of(request.survey.key) || footer.check != check_of(footer))
    return {};
  if (counts != counts_of(request, counts.sequences) || counts.sequences < 1 || counts.sequences > counts.spans)
    return {};
  const std::uint64_t firsts = first_bytes * static_cast<std::uint64_t>(counts.sequences + 1);
  if (file.size() != firsts_begin(counts) + firsts + sizeof(Footer)) return {};
  return counts;
}

std::vector<TokenSpan> read_packed_sequence(const InputFile& file, const PackingCounts& counts, std::int64_t sequence) {
  std::array<std::int64_t, 2> ends{};
  file.read_values(firsts_begin(counts) + first_bytes * static_cast<std::uint64_t>(sequence),
                   std::span<std::int64_t>(ends));
  const auto require_sound = [&](bool sound) {
    require_input(sound, "{}: sequence {} is damaged; remove the file, which is made again when it is missing",
                  file.path(), sequence);
  };
  const auto [first, end] = ends;
  require_sound(first >= 0 && first < end && end <= counts.spans && end - first <= counts.seq_len);
  std::vector<TokenSpan> spans(static_cast<std::size_t>(end - first));
  file.read_values(span_bytes * static_cast<std::uint64_t>(first), std::span(spans));
  std::int64_t inputs = 0;
  for (const TokenSpan& span : spans) {
    require_sound(span.begin >= 0 && span.inputs > 0 && span.inputs <= counts.seq_len - inputs);
    inputs += span.inputs;
  }
  return spans;
}

}  // namespace lyceum
