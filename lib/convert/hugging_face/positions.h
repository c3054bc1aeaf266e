#pragma once

#include "convert/hugging_face/architecture.h"

namespace lyceum::hugging_face {

/// The values of a model class for keys of rotary positions that config.json does not have.
struct RotaryClass {
  double base = 10000;
  /// The class rotates only the first partial_rotary_factor of each head. Otherwise a factor other than 1 is refused:
  /// transformers ignores it, or fails.
  bool partial = false;
  double fraction = 1;
  Json positions = Json::object();  // rope_parameters, if config.json has neither them nor rope_scaling
};

/// Rotary positions of pairs (x_i, x_{i + n}), unscaled or scaled by `linear`, `llama3` or `yarn`: model.rope_base and
/// model.positions. The keys are those of transformers 4 (rope_theta, partial_rotary_factor, rope_scaling) or 5
/// (rope_parameters, which may have all of them). rope_scaling takes precedence, as in transformers, and so does an
/// original_max_position_embeddings outside of the two. Other types (dynamic, longrope, …) are refused, as are keys
/// that have no effect with the type. Uses batch.seq_len. Written are the keys of both versions, with rope_scaling only
/// if the positions are scaled.
Field rotary_positions(const RotaryClass& of_class);

/// rotary_dim: the rotated columns of a head, as published models of minimax_m2 have them instead of
/// partial_rotary_factor. If both are there, they must agree. Add it after rotary_positions() and head_dim().
Field rotary_width();

}  // namespace lyceum::hugging_face
