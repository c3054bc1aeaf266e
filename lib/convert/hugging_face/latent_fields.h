#pragma once

#include <string_view>
#include <vector>

#include "convert/hugging_face/fields.h"

namespace lyceum::hugging_face {

/// Returns the fields of latent attention. The norms of its latents have the epsilon 1e-6 whatever rms_norm_eps is.
std::vector<Field> latent_attention();

/// Positions of pairs of neighbouring columns. `key`: a key that, if false, means pairs of columns i and i + n; empty:
/// the class has no such key. Add it after rotary_positions().
Field interleaved_positions(std::string_view key = {});

}  // namespace lyceum::hugging_face
