#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>

#include "io/data/tokenizer/json/subword_model.h"

namespace lyceum {

/// The `model` of a tokenizer.json that is Unigram. [Kudo 2018] Errors as read_subword_model's.
std::unique_ptr<SubwordModel> read_unigram(const nlohmann::json& json);

}  // namespace lyceum
