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

/// A sample: seq_len tokens of the stream of all documents, or whole documents and padding that is not trained.
enum class SampleKind { stream, packed };
constexpr auto names_of(SampleKind) { return std::array{"stream", "packed"}; }

/// The reaction to a file that is not the one which the checkpoint's run read.
enum class ChangedData { refuse, warn };
constexpr auto names_of(ChangedData) { return std::array{"refuse", "warn"}; }

/// [data]: the tokens that a run reads.
struct DataConfig {
  std::string train, valid;              // prefixes of .bin/.idx, see data_sources()
  std::string tokenizer;                 // SentencePiece .model or tokenizer.json
  std::string chat = "auto";             // name of one of chat_templates(); auto: that of the files of train
  std::vector<std::int64_t> end_tokens;  // tokens that end a generated text, see end_tokens()
  DataOrder order = DataOrder::shuffled;
  SampleKind samples = SampleKind::stream;
  bool document_mask = false;  // tokens attend only to their own document
  double valid_fraction = 0;   // without data.valid: share of train's samples to hold out, the last ones
  ChangedData changed = ChangedData::refuse;
};

/// [batch]: what a step trains on.
struct BatchConfig {
  std::int64_t global = 8, micro = 0;  // sequences; micro 0: global / data ranks
  std::int64_t seq_len = 512;
};

void declare_keys(ConfigKeys& keys, DataConfig& data);
void declare_keys(ConfigKeys& keys, BatchConfig& batch);
void simplify_data(DataConfig& data);

}  // namespace lyceum
