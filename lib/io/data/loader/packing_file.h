#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "io/data/loader/pack_spans.h"
#include "io/files/input_file.h"
#include "io/files/partial_file.h"

/// The file of a packing, which all processes read. Its parts are, in little-endian byte order:
///
/// - the spans ordered by sequence: begin i64, inputs i64,
/// - i64 index of the first span of each sequence, then the number of spans,
/// - a footer with magic bytes, the key of the packing (SpanSurvey::key), its counts and a digest of the footer.
///
/// A file without a valid footer, or of another size than the footer's counts imply, is not a packing.
namespace lyceum {

/// Returns an upper bound for the bytes of the file and of the temporary file while it is written.
std::int64_t most_packing_bytes(std::int64_t spans);
/// Packs a source and writes the file. Uses PATH.placements.partial as a temporary file, where PATH is that of `out`.
/// Needs the memory of pack_spans() with blocks of 16 Mi spans (256 MiB), or of 1/16 of the spans if these are more.
void write_packing_file(PartialFile& out, const PackingRequest& request);
/// Returns the counts of a file. Empty if it is not the packing of the request.
std::optional<PackingCounts> packing_counts(const InputFile& file, const PackingRequest& request);
/// Reads the spans of a sequence, 0 ≤ sequence < counts.sequences. Throws a bad_input Error that names the file if they
/// are not possible.
std::vector<TokenSpan> read_packed_sequence(const InputFile& file, const PackingCounts& counts, std::int64_t sequence);

}  // namespace lyceum
