#pragma once

#include "kernels/cuda/attention_backward_hopper.cuh"
#include "kernels/cuda/attention_forward_hopper.cuh"

namespace lyceum::cuda {

/// Tile extents for heads of up to `dim` columns of queries and keys and up to `value_dim` columns of values. They are
/// chosen to fit into 255 registers per thread and 163 KB of shared memory per block.
template <int dim, int value_dim = dim>
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
struct AttentionTilings<192, 128> {  // latent attention of DeepSeek-V2 and V3
  using Forward = ForwardTiling<192, 4, 2, 32, 128>;
  using Dq = DqTiling<192, 4, 1, 32, 128>;
  using Dkv = DkvTiling<192, 8, 1, 1, 32, 128>;
};
template <>
struct AttentionTilings<256> {
  using Forward = ForwardTiling<256, 4, 1, 64>;
  using Dq = DqTiling<256, 4, 1, 32>;
  using Dkv = DkvTiling<256, 8, 1, 2, 32>;
};

/// Tile extents of the Hopper kernels, with one block per multiprocessor. `dim` is 64 or 128, as is `value_dim`, or
/// they are 192 and 128. There is no Backward for the latter: sums of dk and dv with 192 and 128 columns for 64 keys,
/// beside the scores, take more than the 255 registers of a thread.
template <int dim, int value_dim = dim>
struct HopperTilings {
  using Forward = HopperForwardTiling<dim, 2>;
  using Backward = HopperBackwardTiling<dim, 128 * 64 / dim>;
};
template <>
struct HopperTilings<192, 128> {
  using Forward = HopperForwardTiling<192, 2, 128>;
};

/// The largest width of a head, of queries or of values, that the tensor core kernels support.
inline constexpr std::int64_t max_tiled_dim = 256;

/// True if the heads are wider than 128 columns but fit into tiles of 192 columns of queries and keys and 128 of
/// values.
inline bool fits_192_128(const AttentionShape& shape) {
  return shape.widest() > 128 && shape.head_dim <= 192 && shape.value_cols() <= 128;
}

/// Calls f.template operator()<AttentionTilings<…>>() with the smallest tiles of one width that hold heads of up to
/// `widest` columns, at most max_tiled_dim.
template <class F>
decltype(auto) with_square_tilings(std::int64_t widest, F&& f) {
  if (widest <= 32) return f.template operator()<AttentionTilings<32>>();
  if (widest <= 64) return f.template operator()<AttentionTilings<64>>();
  if (widest <= 128) return f.template operator()<AttentionTilings<128>>();
  return f.template operator()<AttentionTilings<256>>();
}
/// Calls f.template operator()<AttentionTilings<…>>() with the smallest tiles that hold a head, whose widest() is at
/// most max_tiled_dim.
template <class F>
decltype(auto) with_tilings(const AttentionShape& shape, F&& f) {
  if (fits_192_128(shape)) return f.template operator()<AttentionTilings<192, 128>>();
  return with_square_tilings(shape.widest(), f);
}

/// Return true if the Hopper kernels of the forward and of the backward pass are used for heads of this width: the
/// widest() of a shape, or that of a tile. With narrower heads, too much of a tile would be padding.
constexpr bool fits_hopper_backward(std::int64_t widest) { return widest > 32 && widest <= 128; }
constexpr bool fits_hopper_forward(std::int64_t widest) { return fits_hopper_backward(widest) || widest == 192; }

/// Return true if the Hopper kernels are used for the heads of an attention.
inline bool fits_hopper_forward(const AttentionShape& shape) {
  return fits_hopper_backward(shape.widest()) || fits_192_128(shape);
}
inline bool fits_hopper_backward(const AttentionShape& shape) { return fits_hopper_backward(shape.widest()); }

/// Call f.template operator()<Tiling>() with the smallest tiles of the Hopper kernels that hold a head, for which
/// fits_hopper_forward() or fits_hopper_backward() is true.
template <class F>
decltype(auto) with_hopper_forward_tiling(const AttentionShape& shape, F&& f) {
  if (shape.widest() <= 64) return f.template operator()<HopperTilings<64>::Forward>();
  if (shape.widest() <= 128) return f.template operator()<HopperTilings<128>::Forward>();
  return f.template operator()<HopperTilings<192, 128>::Forward>();
}
template <class F>
decltype(auto) with_hopper_backward_tiling(const AttentionShape& shape, F&& f) {
  if (shape.widest() <= 64) return f.template operator()<HopperTilings<64>::Backward>();
  return f.template operator()<HopperTilings<128>::Backward>();
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
