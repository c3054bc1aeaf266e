#pragma once

#include <cstdint>

namespace lyceum {

/// The activation between the two products of an FFN. It determines how many columns the first product computes for
/// each column of the FFN's width, see inputs_of().
enum class Activation {
  swiglu,          // silu(gate) ⊙ up, from two columns, gate and up [Shazeer 2020]
  gelu,            // up · Φ(up), Φ the distribution function of the standard normal [Hendrycks & Gimpel 2016]
  clamped_swiglu,  // gate · σ(α · gate) ⊙ (up + 1), with gate at most `limit` and up within ±limit [gpt-oss 2025]
};

/// An activation with its constants.
struct ActivationFunction {
  Activation kind = Activation::swiglu;
  float alpha = 1.702f, limit = 7;  // of clamped_swiglu

  constexpr ActivationFunction() = default;
  constexpr ActivationFunction(Activation kind) : kind(kind) {}  // NOLINT: with the constants of gpt-oss
  constexpr ActivationFunction(Activation kind, double alpha, double limit)
      : kind(kind), alpha(static_cast<float>(alpha)), limit(static_cast<float>(limit)) {}
};

/// Returns the number of input columns per output column.
constexpr std::int64_t inputs_of(Activation kind) { return kind == Activation::gelu ? 1 : 2; }

}  // namespace lyceum
