#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>

#include "io/data/tokenizer/json/subword_model.h"

namespace lyceum {

/// The `model` of a tokenizer.json that is BPE. [Sennrich et al. 2016] Errors as read_subword_model's.
std::unique_ptr<SubwordModel> read_bpe(const nlohmann::json& json);

}  // namespace lyceum
