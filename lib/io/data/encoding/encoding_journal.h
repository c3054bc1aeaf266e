#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "io/data/encoding/encoding.h"
#include "io/data/records/corpus_reader.h"
#include "io/data/records/skipped.h"
#include "io/data/tokens/megatron_writer.h"

namespace lyceum {

constexpr std::size_t encoding_outputs = 2;  // train, valid

/// The progress of an encoding: how much of the outputs is written, and the position in the corpus behind it.
struct EncodingState {
  CorpusPosition at;
  std::array<MegatronWriter::Progress, encoding_outputs> written{};
  std::array<EncodedSize, encoding_outputs> size{};
  Skipped skipped;
  ReplacedBytes replaced;
};

/// Returns a SHA-256 of everything that the bytes of the outputs depend on.
std::string identity_of(const Encoding& encoding);

/// The file that an unfinished encoding resumes from: TRAIN.progress.
std::string journal_of(const Encoding& encoding);
void write_journal(const Encoding& encoding, const std::string& identity, const EncodingState& state);
/// Returns nothing if there is no journal, or if it is of another encoding, is damaged, or promises more than the
/// unfinished files hold. `vocab`: above every token.
std::optional<EncodingState> read_journal(const Encoding& encoding, std::int64_t vocab);

}  // namespace lyceum
