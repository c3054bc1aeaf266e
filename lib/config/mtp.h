#pragma once

#include <cstdint>

#include "config/feature.h"

namespace lyceum {

/// [mtp]: multi-token prediction [DeepSeek-V3, section 2.2]. Module k of `depth`, counted from 1, predicts from
/// position i the token i + k + 1. Modules are trained only; evaluation and generation do not run them.
struct MtpConfig {
  std::int64_t depth = 0;  // number of modules; 0: none
  /// λ: factor of the mean of the modules' losses, which is added to the loss of the model.
  double weight = 0.3;
};

void declare_keys(ConfigKeys& keys, MtpConfig& mtp);
void check_mtp(Findings& findings, const Config& config);
void simplify_mtp(MtpConfig& mtp);

/// True if batches need TokenBatch::span_starts: modules shift the tokens of packed samples within documents. With
/// data.document_mask, batches have the borders of documents anyway.
bool needs_span_starts(const Config& config);

/// Returns the number of blocks of the model and of its modules of multi-token prediction. Wherever blocks are
/// numbered, the block of module k (from 0 on) has the number model.layers + k.
std::int64_t all_blocks(const Config& config);
}  // namespace lyceum
