#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "io/checkpoint/checkpoint.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {

/// Reads elements `range` of a unit's flat memory from the logical tensors `prefix` + NAME of a checkpoint into
/// `values` (flat, f32, [range.count]); padding is not touched. `prefix`: empty for weights. `read_files` calls each
/// read of the checkpoint. Throws a bad_input Error
/// if a tensor is missing or has another shape.
void read_range(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit,
                std::string_view prefix, const Range& range, const Tensor& values,
                const RunOnFiles& read_files = run_at_once);

/// Reads weights as read_range() does, into values of any float type.
void read_weights(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit, const Range& range,
                  const Tensor& values, const RunOnFiles& read_files = run_at_once);

/// Fills all values of the units with the weights of a checkpoint, for evaluation, generation and conversion.
void load_weights(const CheckpointReader& reader, const Stream& stream, std::span<ParameterUnit* const> units);

/// Appends the checkpoint pieces of elements `range` of a unit: the logical tensors `prefix` + NAME. `values` is flat
/// memory of any float type that begins at element `begin` of the unit. The pieces refer to `stream` and `values`.
void append_pieces(const Stream& stream, const ParameterUnit& unit, std::string_view prefix, const Range& range,
                   const Tensor& values, std::int64_t begin, std::vector<CheckpointPiece>& pieces);

}  // namespace lyceum
