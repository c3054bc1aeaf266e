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

/// The saved progress of an encoding: how much of the outputs is written, and the position in the corpus that this
/// corresponds to.
struct EncodingState {
  CorpusPosition at;
  std::array<MegatronWriter::Progress, encoding_outputs> written{};
  std::array<EncodedSize, encoding_outputs> size{};
  Skipped skipped;
  ReplacedBytes replaced;
};

/// Returns a SHA-256 of everything that determines the bytes of the outputs.
std::string encoding_identity(const Encoding& encoding);

/// Returns the path of the journal, from which an interrupted encoding resumes: PREFIX.progress. `prefix`:
/// Encoding::train.
std::string journal_path(const std::string& prefix);
/// Replaces the journal atomically. `identity`: encoding_identity(encoding). Call it after MegatronWriter::save(),
/// which makes the outputs durable. Throws a failed Error if the file cannot be written.
void write_journal(const Encoding& encoding, const std::string& identity, const EncodingState& state);
/// Returns the progress to resume from; nothing if there is no journal, or if it is damaged, belongs to another
/// encoding, or states more than the unfinished files contain. `vocab`: the size of the vocabulary.
std::optional<EncodingState> read_journal(const Encoding& encoding, std::int64_t vocab);

}  // namespace lyceum
