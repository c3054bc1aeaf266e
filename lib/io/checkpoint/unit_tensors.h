#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "io/checkpoint/checkpoint.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {

/// Reads elements `range` of a unit's flat memory from a checkpoint into `values` (flat, f32, [range.count]). The
/// tensor of a parameter NAME is called `prefix` + NAME in the checkpoint; `prefix` is empty for weights, and
/// "optimizer/STATE/" for state. Elements of `values` that are padding are left unchanged or set to 0. `read_files`
/// executes each read. Throws a bad_input Error if a tensor is missing or has another shape, or as
/// CheckpointReader::read() does.
void read_range(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit,
                std::string_view prefix, const Range& range, const Tensor& values,
                const RunOnFiles& read_files = run_at_once);

/// Reads as read_range() does, but only the tensors for which reads(NAME) is true; NAME is without `prefix`. Leaves all
/// other elements of `values` unchanged.
void read_some(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit, std::string_view prefix,
               const Range& range, const Tensor& values, const std::function<bool(const std::string&)>& reads,
               const RunOnFiles& read_files = run_at_once);

/// Reads optimizer state as read_some() does, into `values` of type f32 or bf16, for which it rounds to nearest what
/// the checkpoint has in f32. Sets all other elements of `values` to 0.
void read_states(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit,
                 std::string_view prefix, const Range& range, const Tensor& values,
                 const std::function<bool(const std::string&)>& reads, const RunOnFiles& read_files = run_at_once);

/// Reads weights as read_range() does with an empty prefix, into `values` of any float type.
void read_weights(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit, const Range& range,
                  const Tensor& values, const RunOnFiles& read_files = run_at_once);

/// Reads all values of the units from a checkpoint, for evaluation, generation and conversion. Throws as read_range()
/// does.
void load_weights(const CheckpointReader& reader, const Stream& stream, std::span<ParameterUnit* const> units);

/// Appends to `slices` the checkpoint slices of elements `range` of a unit, named `prefix` + NAME. `values` is flat
/// memory of any float type whose first element is element `begin` of the unit. Padding is left out. The slices refer
/// to `stream` and to the memory of `values`, which must outlive them and must not change until they are written or
/// copied.
void append_slices(const Stream& stream, const ParameterUnit& unit, std::string_view prefix, const Range& range,
                   const Tensor& values, std::int64_t begin, std::vector<CheckpointSlice>& slices);

}  // namespace lyceum
