#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>

#include "io/data/tokenizer/json/subword_model.h"

namespace lyceum {

/// Reads the `model` of a tokenizer.json whose type is Unigram. [Kudo 2018] Throws the errors of read_subword_model().
std::unique_ptr<SubwordModel> read_unigram(const nlohmann::json& json);

}  // namespace lyceum
