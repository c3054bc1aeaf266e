#pragma once

#include <string>
#include <string_view>

#include "io/checkpoint/manifest.h"

/// The tensors of a manifest as JSON. A checkpoint may have hundreds of thousands.
namespace lyceum {

/// Appends a tensor as one JSON object.
void append_json(std::string& text, const StoredTensor& tensor);

/// Parses a tensor, fast if the text has the form that append_json() writes. Checks the members for themselves, but not
/// whether the boxes are inside the tensor. Throws a bad_input Error or the JSON library's exceptions.
StoredTensor parse_tensor(std::string_view json);

}  // namespace lyceum
