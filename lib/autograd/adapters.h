#pragma once

#include "autograd/parameter.h"
#include "core/stream.h"

namespace lyceum {

/// Adds scale · B · A to the values of every adapted slice of a unit (Parameter::adapters). Rounds scale · B to the
/// type of the values, then each element of the result once. The unit and the units of its adapters must have all their
/// values. Launches one product per slice.
void add_adapters(const Stream& stream, const ParameterUnit& unit);

/// Adds the gradients of a unit's adapters, dA += scale · Bᵀ · dW and dB += scale · dW · Aᵀ, to the gradients in the
/// units of the adapters. dW: the gradients of `unit`, [m', n'] for a slice. The result is linear in dW: if dW is one
/// term of a sum over ranks or micro-batches, dA and dB are the same term of their sums. The units of the adapters must
/// have all their values and gradients. Launches two products per slice, in accumulator precision.
void add_adapter_gradients(const Stream& stream, const ParameterUnit& unit);

}  // namespace lyceum
