#pragma once

#include <cstdint>

namespace lyceum {

/// What is computed between the two products of an FFN, and with it what the first one gives for each unit of its
/// width.
enum class Activation {
  swiglu,  // silu(gate) ⊙ up of a gate and an up [Shazeer 2020]
  gelu,    // up · Φ(up), Φ the normal distribution's [Hendrycks & Gimpel 2016]
};

/// Columns that come in for each that goes out.
constexpr std::int64_t inputs_of(Activation kind) { return kind == Activation::swiglu ? 2 : 1; }

}  // namespace lyceum
