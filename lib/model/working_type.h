#pragma once

#include "config/run.h"
#include "core/dtype.h"

namespace lyceum {

/// Returns the type of weights and activations for run.precision.
inline DType working_type(const RunConfig& run) { return run.precision == Precision::bf16 ? DType::bf16 : DType::f32; }

}  // namespace lyceum
