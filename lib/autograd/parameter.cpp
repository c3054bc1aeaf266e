#include "autograd/parameter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/copy.h"
#include "core/round_up.h"
#include "kernels/tensor_kernels.h"

namespace lyceum {

Parameter& ParameterUnit::add(Parameter parameter) { return append(std::make_unique<Parameter>(std::move(parameter))); }

Parameter& ParameterUnit::append(std::unique_ptr<Parameter> parameter) {
  require(!values_.defined(), "cannot add {1} to {0}, whose memory is already allocated", name_, parameter->name);
  // Aligns every parameter to a cache line, also in bf16.
  constexpr std::int64_t alignment = 32;
  first_.push_back(size_);
  size_ += round_up(parameter->shape.size(), alignment);
  parameters_.push_back(std::move(parameter));
  parameters_.back()->unit = this;
  return *parameters_.back();
}

void ParameterUnit::move_to(ParameterUnit& other, const std::function<bool(const Parameter&)>& moves) {
  std::vector<std::unique_ptr<Parameter>> all = std::exchange(parameters_, {});
  first_.clear();
  size_ = 0;
  for (std::unique_ptr<Parameter>& parameter : all) (moves(*parameter) ? other : *this).append(std::move(parameter));
}

bool Parameter::trained() const { return !unit || unit->trained() || unit->adapted(); }

void Parameter::clear_empty_gradient(const Stream& stream) {
  if (!contribute()) clear(stream, gradient);
}

void ParameterUnit::allocate(const Stream& stream, DType type, bool train) {
  set_values(Tensor::zeros(stream, value_type(type), {size_}, MemoryKind::weights));
  if (train && (trained() || adapted()))
    set_gradients(Tensor::zeros(stream, accumulator_of(type), {size_}, MemoryKind::gradients));
}

void ParameterUnit::set_values(Tensor values) {
  values_ = std::move(values);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    parameters_[p]->value = values_.defined() ? values_.view(first_[p], parameters_[p]->shape) : Tensor();
  }
}

void ParameterUnit::set_gradients(Tensor gradients) {
  gradients_ = std::move(gradients);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    parameters_[p]->gradient = gradients_.defined() ? gradients_.view(first_[p], parameters_[p]->shape) : Tensor();
    parameters_[p]->gradient_empty = false;
  }
}

void ParameterUnit::begin_gradients(const Stream& stream) {
  constexpr std::ptrdiff_t most_ranges = 16;
  const auto is_matrix = [](const Parameter& parameter) { return parameter.shape.rank() == 2; };
  std::vector<Range> others{{0, 0}};  // the elements between matrices
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (!is_matrix(*parameters_[p])) continue;
    others.back().count = first_[p] - others.back().first;
    if (others.back().count == 0) others.pop_back();
    others.push_back({first_[p] + parameters_[p]->shape.size(), 0});
  }
  others.back().count = gradients_.size() - others.back().first;
  if (others.back().count == 0) others.pop_back();
  const bool whole = std::ssize(others) > most_ranges;
  if (whole) others = {{0, gradients_.size()}};
  for (const Range& range : others) clear(stream, gradients_.view(range.first, {range.count}));
  for (const auto& parameter : parameters_) parameter->gradient_empty = !whole && is_matrix(*parameter);
}

Shape ParameterSlice::in_memory() const {
  Shape padded = extent;
  if (pitch > 0) padded[extent.rank() - 1] = pitch;
  return padded;
}

namespace {

/// Calls f(first, length, global) for each row (last dimension) of a slice: its offset from the beginning of the slice
/// in the parameter, its length, and the index of its first element in the whole logical tensor.
template <class F>
void for_each_row(const ParameterSlice& slice, F&& f) {
  const int rank = slice.shape.rank();
  const std::int64_t length = rank ? slice.extent[rank - 1] : 1;
  const std::int64_t rows = length ? slice.extent.size() / length : 0;
  const std::int64_t pitch = rows ? slice.in_memory().size() / rows : 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t rest = row;
    std::int64_t global = rank ? slice.offset[rank - 1] : 0;
    std::int64_t stride = rank ? slice.shape[rank - 1] : 1;
    for (int axis = rank - 2; axis >= 0; --axis) {
      global += (slice.offset[axis] + rest % slice.extent[axis]) * stride;
      rest /= slice.extent[axis];
      stride *= slice.shape[axis];
    }
    f(row * pitch, length, global);
  }
}

/// Collects rows of initial values on the host, draws them on all threads, and copies them to `values`, the memory of
/// the elements of a parameter from `first` on.
template <class T>
class InitialRows {
 public:
  InitialRows(const Stream& stream, const Initial& initial, std::int64_t first, T* values)
      : stream_(stream), initial_(initial), first_(first), values_(values) {}

  /// Adds elements [from, from + count) of the parameter. Their numbers in the whole logical tensor, whose values are
  /// drawn from `random`, begin at `global`. Elements between two rows are padding if they are fewer than
  /// `most_padding`, and become zero; otherwise they keep their values.
  void add(const Philox& random, std::int64_t from, std::int64_t count, std::int64_t global,
           std::int64_t most_padding) {
    constexpr std::int64_t chunk_size = std::int64_t{1} << 20;
    const bool joins = !rows_.empty() && from >= end() && from - end() < most_padding;
    if (!joins) draw();
    if (joins && end() - rows_.front().from >= chunk_size) draw(from);
    rows_.push_back({random, from, count, global});
  }
  /// Draws and copies the rows that were added.
  void draw() {
    if (!rows_.empty()) draw(end());
  }

 private:
  struct Row {
    Philox random;
    std::int64_t from, count, global;
  };
  std::int64_t end() const { return rows_.back().from + rows_.back().count; }

  /// Draws the rows, and copies them and the padding before element `until`.
  void draw(std::int64_t until) {
    const std::int64_t begin = rows_.front().from;
    std::vector<T> chunk(static_cast<std::size_t>(until - begin), T(0.0f));
    const auto count = std::ssize(rows_);
#pragma omp parallel for schedule(static) if (count > 1 && std::ssize(chunk) > 4096)
    for (std::int64_t i = 0; i < count; ++i) {
      const Row& row = rows_[static_cast<std::size_t>(i)];
      std::vector<float> drawn(static_cast<std::size_t>(row.count));
      draw_initial(drawn, initial_, row.random, row.global);
      std::transform(drawn.begin(), drawn.end(), chunk.begin() + (row.from - begin),
                     [](float x) { return static_cast<T>(x); });
    }
    copy_to_device(stream_, values_ + (begin - first_), chunk.data(), chunk.size() * sizeof(T));
    rows_.clear();
  }

  const Stream& stream_;
  const Initial& initial_;
  std::int64_t first_;
  T* values_;
  std::vector<Row> rows_;  // ascending; their memory is one chunk
};

/// Writes initial values of the parameter's elements `range` to `values`.
template <class T>
void initialize_parameter(const Stream& stream, const Parameter& parameter, std::uint64_t seed, const Range& range,
                          T* values) {
  InitialRows<T> rows(stream, parameter.initial, range.first, values);
  for (const ParameterSlice& slice : parameter.slices) {
    const Philox random(seed, slice.name);
    for_each_row(slice, [&](std::int64_t first, std::int64_t length, std::int64_t global) {
      const std::int64_t at = slice.first + first;
      const std::int64_t from = std::max(at, range.first), to = std::min(at + length, range.end());
      if (from < to) rows.add(random, from, to - from, global + from - at, length);
    });
  }
  rows.draw();
}

}  // namespace

void ParameterUnit::initialize(const Stream& stream, std::uint64_t seed, std::int64_t first,
                               const Tensor& values) const {
  const std::int64_t end = first + values.size();
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const std::int64_t from = std::max(first, first_[p]);
    const std::int64_t to = std::min(end, first_[p] + parameters_[p]->shape.size());
    if (from >= to) continue;
    dispatch_float(values.dtype(), [&]<class T>() {
      initialize_parameter(stream, *parameters_[p], seed, {from - first_[p], to - from},
                           values.data<T>() + (from - first));
    });
  }
}

std::string describe_range(const ParameterUnit& unit, const Range& range) {
  std::string text;
  for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
    const Parameter& parameter = *unit.parameters()[p];
    const Range part = common({unit.first_of(p), parameter.shape.size()}, range);
    if (part.count == 0) continue;
    const std::int64_t first = part.first - unit.first_of(p);
    text += format_message("{}elements {} to {} of {}",
                           {text.empty() ? "" : ", ", first, first + part.count - 1, parameter.name});
  }
  return text.empty() ? "the padding of " + unit.name() : text;
}

std::vector<DecayRange> decay_ranges(const ParameterUnit& unit) {
  std::vector<DecayRange> ranges;
  const auto append = [&](std::int64_t end, bool decays) {
    if (ranges.empty() || ranges.back().decays != decays) ranges.emplace_back();
    ranges.back() = {end, decays};
  };
  const auto& parameters = unit.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = *parameters[p];
    std::int64_t at = unit.first_of(p);
    const std::int64_t end = p + 1 < parameters.size() ? unit.first_of(p + 1) : unit.size();
    if (parameter.decay) {
      for (const Range& frozen : parameter.frozen) {
        const std::int64_t first = unit.first_of(p) + frozen.first;
        if (first > at) append(first, true);
        at = first + frozen.count;
        append(at, false);
      }
    }
    if (end > at) append(end, parameter.decay);
  }
  return ranges;
}

void draw_initial(std::span<float> values, const Initial& initial, const Philox& random, std::int64_t first) {
  std::ranges::fill(values, initial.std || initial.identity_rows > 0 ? 0.0f : static_cast<float>(initial.constant));
  if (initial.bound > 0) {
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      const double unit = random.uniform(static_cast<std::uint64_t>(first + i));
      values[static_cast<std::size_t>(i)] = static_cast<float>(initial.bound * (2 * unit - 1));
    }
  }
  if (initial.std > 0.0) fill_normal(values, *initial.std, random, static_cast<std::uint64_t>(first));
  if (const std::int64_t b = initial.identity_rows; b > 0) {
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      if ((first + i) / b % b == (first + i) % b) values[static_cast<std::size_t>(i)] = 1;
    }
  }
}

Parameter whole_parameter(std::string name, Shape shape, const Initial& initial, bool decay) {
  const Shape origin = [&] {
    Shape zero = shape;
    for (int axis = 0; axis < zero.rank(); ++axis) zero[axis] = 0;
    return zero;
  }();
  std::vector<ParameterSlice> slices{{name, shape, origin, shape, 0}};
  return {std::move(name), shape, std::move(slices), initial, decay, {}, {}, {}};
}

Parameter sharded_parameter(std::string name, Shape shape, int axis, Range part, double init_std, std::int64_t room) {
  Shape offset{0, 0}, extent = shape;
  offset[axis] = part.first;
  extent[axis] = part.count;
  std::vector<ParameterSlice> slices{{name, shape, offset, extent, 0, room}};
  const Shape in_memory = slices.front().in_memory();
  return {std::move(name), in_memory, std::move(slices), init_std, true, {}, {}, {}};
}

Parameter stacked_parameter(std::string name, const std::vector<RowsOf>& matrices, std::int64_t cols, double init_std) {
  std::vector<ParameterSlice> slices;
  std::int64_t rows = 0;
  for (const RowsOf& matrix : matrices) {
    const Shape shape{matrix.rows, cols}, extent{matrix.part.count, cols};
    slices.push_back({matrix.name, shape, {matrix.part.first, 0}, extent, rows * cols});
    rows += std::max(matrix.room, matrix.part.count);
  }
  return {std::move(name), {rows, cols}, std::move(slices), init_std, true, {}, {}, {}};
}

Parameter stacked_vector(std::string name, const std::vector<RowsOf>& vectors, const Initial& initial) {
  std::vector<ParameterSlice> slices;
  std::int64_t size = 0;
  for (const RowsOf& vector : vectors) {
    slices.push_back({vector.name, {vector.rows}, {vector.part.first}, {vector.part.count}, size});
    size += std::max(vector.room, vector.part.count);
  }
  return {std::move(name), {size}, std::move(slices), initial, false, {}, {}, {}};
}

}  // namespace lyceum
