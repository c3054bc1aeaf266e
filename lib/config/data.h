#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "config/feature.h"

namespace lyceum {

/// The order of the training samples.
enum class DataOrder { shuffled, sequential };
constexpr auto names_of(DataOrder) { return std::array{"shuffled", "sequential"}; }

/// The samples: seq_len consecutive tokens of the stream of all documents, or whole documents with padding that is not
/// trained.
enum class SampleKind { stream, packed };
constexpr auto names_of(SampleKind) { return std::array{"stream", "packed"}; }

/// The reaction to a data file that differs from the one that the checkpoint's run read.
enum class ChangedData { refuse, warn };
constexpr auto names_of(ChangedData) { return std::array{"refuse", "warn"}; }

/// [data]: the tokens that a run reads.
struct DataConfig {
  std::string train, valid;   // prefixes of .bin/.idx files, see data_sources()
  std::string tokenizer;      // SentencePiece .model or tokenizer.json
  std::string chat = "auto";  // name of one of chat_templates(); auto: the template of the files of data.train
  std::vector<std::int64_t> end_tokens;  // ids of additional tokens that end a generated text, see end_tokens()
  DataOrder order = DataOrder::shuffled;
  SampleKind samples = SampleKind::stream;
  bool document_mask = false;  // tokens attend only to their own document, in which positions count from 0
  double valid_fraction = 0;   // if data.valid is empty: share of train's samples that is held out, the last ones
  ChangedData changed = ChangedData::refuse;
};

/// [batch]: the number and length of the sequences of a step.
struct BatchConfig {
  /// Sequences per step over all ranks, and sequences that a rank processes at once (0: global / data ranks).
  std::int64_t global = 8, micro = 0;
  std::int64_t seq_len = 512;  // tokens per sequence
};

void declare_keys(ConfigKeys& keys, DataConfig& data);
void declare_keys(ConfigKeys& keys, BatchConfig& batch);
void simplify_data(DataConfig& data);

}  // namespace lyceum
