#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>

#include "io/data/tokenizer/json/subword_model.h"

namespace lyceum {

/// Reads the `model` of a tokenizer.json whose type is BPE. [Sennrich et al. 2016] Throws the errors of
/// read_subword_model().
std::unique_ptr<SubwordModel> read_bpe(const nlohmann::json& json);

}  // namespace lyceum
