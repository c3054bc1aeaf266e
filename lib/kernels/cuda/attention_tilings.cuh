#pragma once

#include "kernels/cuda/attention_backward_hopper.cuh"
#include "kernels/cuda/attention_forward_hopper.cuh"

namespace lyceum::cuda {

/// Tile extents for heads of up to `dim` columns. They are chosen to fit into 255 registers per thread and 163 KB of
/// shared memory per block.
template <int dim>
struct AttentionTilings;
template <>
struct AttentionTilings<32> {
  using Forward = ForwardTiling<32, 4, 2, 64>;
  using Dq = DqTiling<32, 4, 2, 64>;
  using Dkv = DkvTiling<32, 4, 2, 1, 32>;
};
template <>
struct AttentionTilings<64> {
  using Forward = ForwardTiling<64, 4, 2, 64>;
  using Dq = DqTiling<64, 4, 2, 32>;
  using Dkv = DkvTiling<64, 4, 2, 1, 32>;
};
template <>
struct AttentionTilings<128> {
  using Forward = ForwardTiling<128, 4, 2, 32>;
  using Dq = DqTiling<128, 4, 2, 32>;
  using Dkv = DkvTiling<128, 8, 1, 1, 32>;
};
template <>
struct AttentionTilings<256> {
  using Forward = ForwardTiling<256, 4, 1, 64>;
  using Dq = DqTiling<256, 4, 1, 32>;
  using Dkv = DkvTiling<256, 8, 1, 2, 32>;
};

/// Tile extents of the Hopper kernels, with one block per multiprocessor. `dim` is 64 or 128.
template <int dim>
struct HopperTilings {
  using Forward = HopperForwardTiling<dim, 2>;
  using Backward = HopperBackwardTiling<dim, 128 * 64 / dim>;
};

/// The largest head_dim that the tensor core kernels support.
inline constexpr std::int64_t max_tiled_dim = 256;

/// Calls f.template operator()<AttentionTilings<…>>() with the smallest tiles that hold a head of `head_dim` columns,
/// which is at most max_tiled_dim.
template <class F>
decltype(auto) with_tilings(std::int64_t head_dim, F&& f) {
  if (head_dim <= 32) return f.template operator()<AttentionTilings<32>>();
  if (head_dim <= 64) return f.template operator()<AttentionTilings<64>>();
  if (head_dim <= 128) return f.template operator()<AttentionTilings<128>>();
  return f.template operator()<AttentionTilings<256>>();
}

/// True if the Hopper kernels are used for this head_dim. With shorter heads, too much of a tile would be padding.
constexpr bool fits_hopper(std::int64_t head_dim) { return head_dim > 32 && head_dim <= 128; }

/// Calls f.template operator()<HopperTilings<…>>() with the smallest tiles that hold a head of `head_dim` columns, for
/// which fits_hopper() is true.
template <class F>
decltype(auto) with_hopper_tilings(std::int64_t head_dim, F&& f) {
  if (head_dim <= 64) return f.template operator()<HopperTilings<64>>();
  return f.template operator()<HopperTilings<128>>();
}

/// Block order of kernels whose blocks hold `rows` queries of one query head.
inline BlockOrder query_order(const AttentionShape& shape, int rows, std::int64_t section) {
  return {shape.sequences * shape.heads, (shape.query_len + rows - 1) / rows, section, true};
}
/// Block order of kernels whose blocks hold `rows` keys of one key head.
inline BlockOrder key_order(const AttentionShape& shape, int rows, std::int64_t section) {
  return {shape.sequences * shape.kv_heads, (shape.key_len + rows - 1) / rows, section, false};
}
/// key_order() for kernels whose blocks wait for blocks with later keys of the same head: those come first.
inline BlockOrder later_keys_first(const AttentionShape& shape, int rows, std::int64_t section) {
  BlockOrder order = key_order(shape, rows, section);
  order.last_tile_first = true;
  return order;
}

/// Number of heads per section such that two matrices (keys and values, or queries and d_out) of `rows` rows, with
/// `head_bytes` bytes per row and head, take about 16 MB per section, a third of an H100's L2 cache; at least 1.
inline std::int64_t section_of(std::int64_t rows, std::int64_t head_bytes) {
  const std::int64_t bytes = 2 * rows * head_bytes;
  return bytes == 0 ? 1 : 1 + (16 << 20) / bytes;
}

}  // namespace lyceum::cuda
