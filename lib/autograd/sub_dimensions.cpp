#include "autograd/sub_dimensions.h"

#include <utility>

#include "autograd/sub_dimension_factors.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/grouped_gemm.h"
#include "kernels/sub_dimensions.h"

namespace lyceum {

namespace {

/// Divides W into the equal column or row ranges of the sub-dimensions.
enum class Cut { columns, rows };
template <class T>
std::vector<Matrix<T>> split_weight(const Matrix<T>& weight, Cut cut, std::int64_t sub_dimensions) {
  const std::int64_t width = (cut == Cut::columns ? weight.cols : weight.rows) / sub_dimensions;
  std::vector<Matrix<T>> parts;
  for (std::int64_t i = 0; i < sub_dimensions; ++i) {
    parts.push_back(cut == Cut::columns ? weight.cols_from(i * width, width) : weight.rows_from(i * width, width));
  }
  return parts;
}
template <class T>
std::vector<Matrix<const T>> split_values(const Tensor& weight, Cut cut, std::int64_t sub_dimensions) {
  const std::vector<Matrix<T>> parts = split_weight(weight.matrix<T>(), cut, sub_dimensions);
  return {parts.begin(), parts.end()};
}

SegmentLayout layout_of(const Stream& stream, const SubDimensionChoices& choices, std::int64_t width) {
  if (choices.rows.top_k == 0) return {};
  return {stream, *choices.segments,
          std::vector<std::int64_t>(static_cast<std::size_t>(choices.sub_dimensions), width)};
}

/// Returns the rows of a grouped product: the chosen sub-dimensions of tokens x, read in place.
template <class T>
PickedRows<T> picked_sub_dimensions(const SubDimensionChoices& choices, const Tensor& x) {
  const std::int64_t rows = x.shape()[0] * choices.sub_dimensions;
  return {.x = {x.data<const T>(), rows, x.size() / std::max<std::int64_t>(rows, 1)},
          .source = choices.source.span<const std::int64_t>(),
          .divisor = 1};
}

template <class T>
Matrix<T> matrix_if_any(const Tensor& tensor) {
  return tensor.size() > 0 ? tensor.matrix<T>() : Matrix<T>{};
}

/// Sums the rows of each token, in the order of its choices, into y [tokens, columns]. If `add` is true, adds the sum
/// to y.
template <class T>
void sum_rows(const Stream& stream, const SubDimensionChoices& choices, const Tensor& rows, const Tensor& y, bool add) {
  const auto slot = choices.rows.row_of_pair.span<const std::int64_t>();
  if (add) {
    launch(stream, AddPairs<T>{.rows = rows.matrix<T>(), .slot = slot, .k = choices.rows.top_k, .y = y.matrix<T>()});
  } else {
    launch(stream, CombineRows<T>{
                       .x = rows.matrix<T>(), .slot = slot, .k = choices.rows.top_k, .gate = {}, .y = y.matrix<T>()});
  }
}

}  // namespace

SubDimensionChoices::SubDimensionChoices(const Stream& stream, std::int64_t sub_dimensions, std::int64_t always_on,
                                         std::int64_t tokens)
    : sub_dimensions(sub_dimensions),
      always_on(always_on),
      index(Tensor::empty(stream, DType::i32, {tokens, 0})),
      rows{.pair_of_row = Tensor::empty(stream, DType::i64, {0}),
           .row_of_pair = Tensor::empty(stream, DType::i64, {0})},
      source(Tensor::empty(stream, DType::i64, {0})) {}

SubDimensionChoices::SubDimensionChoices(const Stream& stream, std::int64_t sub_dimensions, std::int64_t always_on,
                                         Tensor index, std::shared_ptr<const SegmentTable> segments, TokenRows rows)
    : sub_dimensions(sub_dimensions),
      always_on(always_on),
      index(std::move(index)),
      segments(std::move(segments)),
      rows(std::move(rows)),
      source(Tensor::empty(stream, DType::i64, {this->rows.pair_of_row.size()})) {
  launch(stream, SubDimensionRows{.pair_of_row = this->rows.pair_of_row.span<const std::int64_t>(),
                                  .index = this->index.matrix<const std::int32_t>(),
                                  .sub_dimensions = sub_dimensions,
                                  .source = source.span<std::int64_t>()});
}

Tensor ReadSubDimensions::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  const std::int64_t tokens = x.shape()[0], hidden = x.shape()[1], out = weight->shape[0];
  const std::int64_t width = hidden / choices->sub_dimensions, shared = choices->always_on * width;
  require(weight->shape[1] == hidden && width * choices->sub_dimensions == hidden,
          "an input {} in {} sub-dimensions does not match the weight {}", x.shape(), choices->sub_dimensions,
          weight->shape);
  saved = {.x = x,
           .d_rows = {},
           .sub_dimension = layout_of(stream, *choices, width),
           .out = layout_of(stream, *choices, out)};
  const Tensor y = Tensor::empty(stream, x.dtype(), {tokens, out});
  const Tensor rows = Tensor::empty(stream, x.dtype(), {choices->source.size(), out});
  dispatch_float(x.dtype(), [&]<class T>() {
    if (shared > 0) {
      launch(stream, Gemm<T>{.a = x.matrix<T>().cols_from(0, shared),
                             .b = weight->value.matrix<T>().cols_from(0, shared),
                             .c = y.matrix<T>(),
                             .transpose_b = true});
    }
    if (choices->rows.top_k == 0) return;
    launch(stream, GroupedGemm<T>{.segments = choices->segments->view(),
                                  .x = saved.sub_dimension.over(x.data<const T>()),
                                  .weights = split_values<T>(weight->value, Cut::columns, choices->sub_dimensions),
                                  .y = saved.out.over(rows.data<T>()),
                                  .transpose_weights = true,
                                  .picked = picked_sub_dimensions<T>(*choices, x)});
    sum_rows<T>(stream, *choices, rows, y, shared > 0);
  });
  return y;
}

std::array<Tensor, 1> ReadSubDimensions::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const std::int64_t hidden = saved.x.shape()[1], width = hidden / choices->sub_dimensions,
                     shared = choices->always_on * width;
  const std::int64_t rows = choices->source.size();
  saved.d_rows = Tensor::empty(stream, dy.dtype(), {rows, dy.shape()[1]});
  const Tensor dx = Tensor::empty(stream, dy.dtype(), saved.x.shape());
  const Tensor dx_rows = Tensor::empty(stream, dy.dtype(), {rows, width});
  dispatch_float(dy.dtype(), [&]<class T>() {
    if (shared > 0) {
      launch(stream, Gemm<T>{.a = dy.matrix<T>(),
                             .b = weight->value.matrix<T>().cols_from(0, shared),
                             .c = dx.matrix<T>().cols_from(0, shared)});
    }
    if (choices->rows.top_k > 0) {
      launch(stream, GatherRows<T>{.x = dy.matrix<T>(),
                                   .source = choices->rows.pair_of_row.span<const std::int64_t>(),
                                   .y = saved.d_rows.matrix<T>(),
                                   .divisor = choices->rows.top_k});
      launch(stream, GroupedGemm<T>{.segments = choices->segments->view(),
                                    .x = saved.out.over(saved.d_rows.data<const T>()),
                                    .weights = split_values<T>(weight->value, Cut::columns, choices->sub_dimensions),
                                    .y = saved.sub_dimension.over(dx_rows.data<T>())});
    }
    launch(stream, PlaceSubDimensions<T>{.dense = {},
                                         .rows = dx_rows.matrix<T>(),
                                         .slot = choices->rows.row_of_pair.span<const std::int64_t>(),
                                         .index = matrix_of_choices(choices->index),
                                         .always_on = choices->always_on,
                                         .factors = {},
                                         .y = dx.matrix<T>()});
  });
  return {dx};
}

void ReadSubDimensions::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const std::int64_t shared = choices->always_on * (saved.x.shape()[1] / choices->sub_dimensions);
  dispatch_float(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Matrix<A> gradient = weight->gradient.matrix<A>();
    if (shared > 0) {
      launch(stream, Gemm<T, A>{.a = dy.matrix<T>(),
                                .b = saved.x.matrix<T>().cols_from(0, shared),
                                .c = gradient.cols_from(0, shared),
                                .transpose_a = true,
                                .accumulate = true});
    }
    if (choices->rows.top_k == 0) return;
    launch(stream, GroupedWeightGrad<T>{.segments = choices->segments->view(),
                                        .dy = saved.out.over(saved.d_rows.data<const T>()),
                                        .x = saved.sub_dimension.over(saved.x.data<const T>()),
                                        .d_weights = split_weight(gradient, Cut::columns, choices->sub_dimensions),
                                        .picked = picked_sub_dimensions<T>(*choices, saved.x)});
  });
  saved.d_rows = {};
}

Tensor WriteSubDimensions::forward(const Stream& stream, Saved& saved, const Tensor& z, const Tensor& factors) const {
  const std::int64_t tokens = z.shape()[0], in = z.shape()[1], hidden = weight->shape[0];
  const std::int64_t width = hidden / choices->sub_dimensions, shared = choices->always_on * width;
  require(weight->shape[1] == in && width * choices->sub_dimensions == hidden,
          "an input {} does not match the weight {} in {} sub-dimensions", z.shape(), weight->shape,
          choices->sub_dimensions);
  saved = {.z = z,
           .factors = factors,
           .dense = Tensor::empty(stream, z.dtype(), {tokens, shared}),
           .rows = Tensor::empty(stream, z.dtype(), {choices->source.size(), width}),
           .d_dense = {},
           .d_rows = {},
           .in = layout_of(stream, *choices, in),
           .sub_dimension = layout_of(stream, *choices, width)};
  const Tensor y = Tensor::empty(stream, z.dtype(), {tokens, hidden});
  dispatch_float(z.dtype(), [&]<class T>() {
    if (shared > 0) {
      launch(stream, Gemm<T>{.a = z.matrix<T>(),
                             .b = weight->value.matrix<T>().rows_from(0, shared),
                             .c = saved.dense.matrix<T>(),
                             .transpose_b = true});
    }
    if (choices->rows.top_k > 0) {
      launch(stream, GroupedGemm<T>{.segments = choices->segments->view(),
                                    .x = saved.in.over(z.data<const T>()),
                                    .weights = split_values<T>(weight->value, Cut::rows, choices->sub_dimensions),
                                    .y = saved.sub_dimension.over(saved.rows.data<T>()),
                                    .transpose_weights = true,
                                    .picked = choices->rows.picked<T>(z)});
    }
    launch(stream, PlaceSubDimensions<T>{.dense = matrix_if_any<T>(saved.dense),
                                         .rows = saved.rows.matrix<T>(),
                                         .slot = choices->rows.row_of_pair.span<const std::int64_t>(),
                                         .index = matrix_of_choices(choices->index),
                                         .always_on = choices->always_on,
                                         .factors = factors.matrix<Accumulator<T>>(),
                                         .y = y.matrix<T>()});
  });
  return y;
}

std::array<Tensor, 2> WriteSubDimensions::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const std::int64_t shared = saved.dense.shape()[1];
  saved.d_dense = Tensor::empty(stream, dy.dtype(), saved.dense.shape());
  saved.d_rows = Tensor::zeros(stream, dy.dtype(), saved.rows.shape());  // rows of padding are not written below
  const Tensor d_factors = Tensor::empty(stream, saved.factors.dtype(), saved.factors.shape());
  const Tensor dz = Tensor::empty(stream, dy.dtype(), saved.z.shape());
  const Tensor dz_rows = Tensor::empty(stream, dy.dtype(), {saved.rows.shape()[0], saved.z.shape()[1]});
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, PlaceSubDimensionsBackward<T>{.dense = matrix_if_any<T>(saved.dense),
                                                 .rows = saved.rows.matrix<T>(),
                                                 .slot = choices->rows.row_of_pair.span<const std::int64_t>(),
                                                 .index = matrix_of_choices(choices->index),
                                                 .always_on = choices->always_on,
                                                 .factors = saved.factors.matrix<Accumulator<T>>(),
                                                 .dy = dy.matrix<T>(),
                                                 .d_dense = matrix_if_any<T>(saved.d_dense),
                                                 .d_rows = saved.d_rows.matrix<T>(),
                                                 .d_factors = d_factors.matrix<Accumulator<T>>()});
    if (shared > 0) {
      launch(stream, Gemm<T>{.a = saved.d_dense.matrix<T>(),
                             .b = weight->value.matrix<T>().rows_from(0, shared),
                             .c = dz.matrix<T>()});
    }
    if (choices->rows.top_k == 0) return;
    launch(stream, GroupedGemm<T>{.segments = choices->segments->view(),
                                  .x = saved.sub_dimension.over(saved.d_rows.data<const T>()),
                                  .weights = split_values<T>(weight->value, Cut::rows, choices->sub_dimensions),
                                  .y = saved.in.over(dz_rows.data<T>())});
    sum_rows<T>(stream, *choices, dz_rows, dz, shared > 0);
  });
  saved.dense = saved.rows = saved.factors = {};
  return {dz, d_factors};
}

void WriteSubDimensions::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  dispatch_float(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Matrix<A> gradient = weight->gradient.matrix<A>();
    const std::int64_t shared = saved.d_dense.shape()[1];
    if (shared > 0) {
      launch(stream, Gemm<T, A>{.a = saved.d_dense.matrix<T>(),
                                .b = saved.z.matrix<T>(),
                                .c = gradient.rows_from(0, shared),
                                .transpose_a = true,
                                .accumulate = true});
    }
    if (choices->rows.top_k == 0) return;
    launch(stream, GroupedWeightGrad<T>{.segments = choices->segments->view(),
                                        .dy = saved.sub_dimension.over(saved.d_rows.data<const T>()),
                                        .x = saved.in.over(saved.z.data<const T>()),
                                        .d_weights = split_weight(gradient, Cut::rows, choices->sub_dimensions),
                                        .picked = choices->rows.picked<T>(saved.z)});
  });
  saved.d_dense = saved.d_rows = {};
}

}  // namespace lyceum
