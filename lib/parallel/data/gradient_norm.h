#pragma once

#include <span>

#include "core/stream.h"
#include "parallel/comm/mesh.h"
#include "parallel/data/sharded_unit.h"

namespace lyceum {

/// Collective: the Euclidean norm of all gradients of the model, every logical element once (twins do not count),
/// the same bits on every rank. NaN and infinity show. `layers`: of the whole model, all ParameterUnit::layer() are
/// below.
///
/// Squares are summed in double in one order: within blocks of range_block elements of a unit's flat memory, over its
/// blocks, over the ranks that share out the kind's matrices or experts, in rank order, over the layers. Neither the
/// ZeRO stage nor the number of pipeline stages changes a bit.
double gradient_norm(const Stream& stream, const Mesh& mesh, std::span<const UnitShare> shares, int layers);

}  // namespace lyceum
