#pragma once

#include <cstdint>

namespace lyceum {

/// The activation between the two products of an FFN. It determines how many columns the first product computes for
/// each column of the FFN's width, see inputs_of().
enum class Activation {
  swiglu,  // silu(gate) ⊙ up, from two columns, gate and up [Shazeer 2020]
  gelu,    // up · Φ(up), Φ the distribution function of the standard normal [Hendrycks & Gimpel 2016]
};

/// Returns the number of input columns per output column.
constexpr std::int64_t inputs_of(Activation kind) { return kind == Activation::swiglu ? 2 : 1; }

}  // namespace lyceum
