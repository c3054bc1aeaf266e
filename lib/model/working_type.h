#pragma once

#include "config/run.h"
#include "core/dtype.h"

namespace lyceum {

/// The type of weights and activations that run.precision names.
inline DType working_type(const RunConfig& run) { return run.precision == Precision::bf16 ? DType::bf16 : DType::f32; }

}  // namespace lyceum
