#include "autograd/adapters.h"

#include <map>

#include "kernels/gemm.h"
#include "kernels/tensor_kernels.h"

namespace lyceum {

namespace {

/// Caches the values of units of adapters, times a factor.
class ScaledValues {
 public:
  ScaledValues(const Stream& stream, double scale) : stream_(stream), scale_(scale) {}

  /// Returns a matrix of an adapter from its scaled unit, in accumulator precision rounded to T.
  template <class T>
  Matrix<const T> of(const LowRankAdapter::Factor& factor) {
    Tensor& flat = by_unit_[factor.parameter->unit];
    if (!flat.defined()) flat = scaled<T>(factor.parameter->unit->values());
    return flat.view(factor.first, factor.parameter->shape).template matrix<T>();
  }

 private:
  template <class T>
  Tensor scaled(const Tensor& values) const {
    const Tensor sums = Tensor::empty(stream_, accumulator_of(values.dtype()), values.shape());
    convert(stream_, values, sums);
    dispatch_accumulator(sums.dtype(), [&]<class A>() {
      launch(stream_, Scale<A>{.x = sums.span<A>(), .y = sums.span<A>(), .factor = scale_});
    });
    if (sums.dtype() == dtype_of<T>) return sums;
    const Tensor rounded = Tensor::empty(stream_, dtype_of<T>, values.shape());
    convert(stream_, sums, rounded);
    return rounded;
  }

  const Stream& stream_;
  double scale_;
  std::map<const ParameterUnit*, Tensor> by_unit_;
};

/// Returns a slice of a parameter as a matrix. `flat`: the parameter's values or gradients.
template <class T>
Matrix<T> matrix_of(const Tensor& flat, const ParameterSlice& slice) {
  return {flat.data<T>() + slice.first, slice.extent[0], slice.extent[1], slice.in_memory()[1]};
}

/// Calls f(parameter, slice, adapter) for every adapted slice of a unit that is not empty.
template <class F>
void for_each_adapter(const ParameterUnit& unit, F&& f) {
  for (const auto& parameter : unit.parameters()) {
    for (const LowRankAdapter& adapter : parameter->adapters) {
      const ParameterSlice& slice = parameter->slices[adapter.slice];
      if (slice.extent.size() > 0) f(*parameter, slice, adapter);
    }
  }
}

}  // namespace

void add_adapters(const Stream& stream, const ParameterUnit& unit) {
  dispatch_float(unit.values().dtype(), [&]<class T>() {
    ScaledValues scaled(stream, unit.adapter_scale());
    for_each_adapter(unit, [&](const Parameter& parameter, const ParameterSlice& slice, const LowRankAdapter& adapter) {
      launch(stream, Gemm<T>{.a = scaled.template of<T>(adapter.b),
                             .b = adapter.a.parameter->value.template matrix<T>(),
                             .c = matrix_of<T>(parameter.value, slice),
                             .accumulate = true});
    });
  });
}

void add_adapter_gradients(const Stream& stream, const ParameterUnit& unit) {
  dispatch_accumulator(unit.gradients().dtype(), [&]<class A>() {
    ScaledValues scaled(stream, unit.adapter_scale());
    for_each_adapter(unit, [&](const Parameter& parameter, const ParameterSlice& slice, const LowRankAdapter& adapter) {
      const Matrix<const A> dw = matrix_of<A>(parameter.gradient, slice);
      launch(stream, Gemm<A>{.a = scaled.template of<A>(adapter.b),
                             .b = dw,
                             .c = adapter.a.parameter->gradient.template matrix<A>(),
                             .transpose_a = true,
                             .accumulate = adapter.a.parameter->contribute()});
      launch(stream, Gemm<A>{.a = dw,
                             .b = scaled.template of<A>(adapter.a),
                             .c = adapter.b.parameter->gradient.template matrix<A>(),
                             .transpose_b = true,
                             .accumulate = adapter.b.parameter->contribute()});
    });
  });
}

}  // namespace lyceum
