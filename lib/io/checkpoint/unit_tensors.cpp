#include "io/checkpoint/unit_tensors.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/copy.h"
#include "kernels/tensor_kernels.h"

namespace lyceum {

namespace {

/// The location of a box of a logical tensor in a unit's flat memory: rows along the last dimension, the first one at
/// element `first`, and `pitch` elements from the beginning of a row to that of the next.
struct HeldBox {
  Box box;
  std::int64_t first, pitch;

  std::int64_t columns() const { return box.extent[box.extent.rank() - 1]; }
  std::int64_t rows() const { return box.extent.size() / columns(); }
  bool contiguous() const { return pitch == columns() || rows() == 1; }
  /// Number of elements from the first to the last, including the padding between rows.
  std::int64_t span() const { return (rows() - 1) * pitch + columns(); }
};

/// Calls f(slice, held) for each box of a logical tensor that elements `range` of the unit's flat memory hold.
template <class F>
void for_each_box(const ParameterUnit& unit, const Range& range, F&& f) {
  for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
    for (const ParameterSlice& slice : unit.parameters()[p]->slices) {
      const Shape in_memory = slice.in_memory();
      const Range whole{unit.first_of(p) + slice.first, in_memory.size()};
      const Range part = common(whole, range);
      const int last = in_memory.rank() - 1;
      std::int64_t next = part.first;
      for (Box& box : boxes_of_range(in_memory, part.count ? next - whole.first : 0, part.count)) {
        const std::int64_t at = std::exchange(next, next + box.extent.size()), pitch = box.extent[last];
        box.extent[last] = std::min(pitch, slice.extent[last] - box.offset[last]);
        if (box.extent[last] <= 0) continue;  // padding
        for (int axis = 0; axis <= last; ++axis) box.offset[axis] += slice.offset[axis];
        f(slice, HeldBox{box, at, pitch});
      }
    }
  }
}

void require_tensor(const CheckpointReader& reader, const std::string& name, const Shape& shape) {
  const CheckpointReader::Entry* entry = reader.find(name);
  require_input(entry, "{} has no tensor {}: was it written by another model?", reader.directory().string(), name);
  require_input(entry->shape == shape, "{}: {} is {}, this model has {}: use the configuration of the checkpoint",
                reader.directory().string(), name, entry->shape.text(), shape.text());
}

/// Reads boxes of tensors to a unit's memory. Reads many small boxes in one action on files, since each such action may
/// start a thread. Call flush() after the last box.
class BoxReader {
 public:
  /// Element `begin` of the unit is the first one of `values`.
  BoxReader(const CheckpointReader& reader, const Stream& stream, const Tensor& values, std::int64_t begin,
            const RunOnFiles& read_files)
      : reader_(reader), stream_(stream), values_(values), begin_(begin), read_files_(read_files) {}

  void add(std::string name, const HeldBox& held) {
    boxes_.push_back({std::move(name), held, elements_});
    elements_ += held.box.extent.size();
    if (elements_ >= most_elements) flush();
  }
  void flush() {
    if (boxes_.empty()) return;
    read_.resize(static_cast<std::size_t>(elements_));
    read_files_([&] {
      for (const Wanted& wanted : boxes_) reader_.read(wanted.name, wanted.held.box, read_.data() + wanted.first);
    });
    for (const Wanted& wanted : boxes_) copy(wanted.held, read_.data() + wanted.first);
    boxes_.clear();
    elements_ = 0;
  }

 private:
  static constexpr std::int64_t most_elements = 1 << 18;
  struct Wanted {
    std::string name;
    HeldBox held;
    std::int64_t first;  // in read_
  };

  void copy(const HeldBox& held, const float* from) {
    if (!held.contiguous()) {
      padded_.assign(static_cast<std::size_t>(held.span()), 0.0f);  // padding is 0, not the values of an earlier box
      for (std::int64_t row = 0; row < held.rows(); ++row) {
        std::copy_n(from + row * held.columns(), held.columns(), padded_.data() + row * held.pitch);
      }
      from = padded_.data();
    }
    const std::int64_t count = held.contiguous() ? held.box.extent.size() : held.span();
    copy_to_device(stream_, values_.data<float>() + (held.first - begin_), from,
                   static_cast<std::size_t>(count) * sizeof(float));
  }

  const CheckpointReader& reader_;
  const Stream& stream_;
  const Tensor& values_;
  const std::int64_t begin_;
  const RunOnFiles& read_files_;
  std::vector<Wanted> boxes_;
  std::int64_t elements_ = 0;
  std::vector<float> read_, padded_;
};

CheckpointSlice slice_of(const Stream& stream, std::string_view prefix, const ParameterSlice& slice,
                         const HeldBox& held, const Tensor& values, std::int64_t begin) {
  CheckpointSlice made{.name = std::string(prefix) + slice.name, .shape = slice.shape, .box = held.box};
  const std::int64_t first = held.first - begin;
  if (values.dtype() == DType::f32 && held.contiguous()) {
    made.values = values.data<float>() + first;
    made.stream = &stream;
    return made;
  }
  made.make = [&stream, held, own = values.slice(first, held.span())](std::span<float> written) {
    dispatch_float(own.dtype(), [&]<class T>() {
      const std::vector<T> there = values_of<T>(stream, own);
      for (std::int64_t row = 0; row < held.rows(); ++row) {
        std::transform(there.begin() + row * held.pitch, there.begin() + row * held.pitch + held.columns(),
                       written.begin() + row * held.columns(), [](T x) { return static_cast<float>(x); });
      }
    });
  };
  return made;
}

}  // namespace

void read_range(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit,
                std::string_view prefix, const Range& range, const Tensor& values, const RunOnFiles& read_files) {
  const std::string before(prefix);
  for (const auto& parameter : unit.parameters()) {
    for (const ParameterSlice& slice : parameter->slices) require_tensor(reader, before + slice.name, slice.shape);
  }
  BoxReader boxes(reader, stream, values, range.first, read_files);
  for_each_box(unit, range,
               [&](const ParameterSlice& slice, const HeldBox& held) { boxes.add(before + slice.name, held); });
  boxes.flush();
}

void read_some(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit, std::string_view prefix,
               const Range& range, const Tensor& values, const std::function<bool(const std::string&)>& reads,
               const RunOnFiles& read_files) {
  const std::string before(prefix);
  BoxReader boxes(reader, stream, values, range.first, read_files);
  for_each_box(unit, range, [&](const ParameterSlice& slice, const HeldBox& held) {
    if (!reads(slice.name)) return;
    require_tensor(reader, before + slice.name, slice.shape);
    boxes.add(before + slice.name, held);
  });
  boxes.flush();
}

void read_states(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit,
                 std::string_view prefix, const Range& range, const Tensor& values,
                 const std::function<bool(const std::string&)>& reads, const RunOnFiles& read_files) {
  clear(stream, values);
  if (values.dtype() != DType::bf16) return read_some(reader, stream, unit, prefix, range, values, reads, read_files);
  const Tensor flat = Tensor::zeros(stream, DType::f32, {range.count}, MemoryKind::buffers);
  read_some(reader, stream, unit, prefix, range, flat, reads, read_files);
  convert(stream, flat, values);
}

void read_weights(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit, const Range& range,
                  const Tensor& values, const RunOnFiles& read_files) {
  if (values.dtype() == DType::f32) return read_range(reader, stream, unit, "", range, values, read_files);
  const Tensor flat = Tensor::zeros(stream, DType::f32, {range.count}, MemoryKind::buffers);
  read_range(reader, stream, unit, "", range, flat, read_files);
  convert(stream, flat, values);
}

void load_weights(const CheckpointReader& reader, const Stream& stream, std::span<ParameterUnit* const> units) {
  for (const ParameterUnit* unit : units) read_weights(reader, stream, *unit, {0, unit->size()}, unit->values());
}

void append_slices(const Stream& stream, const ParameterUnit& unit, std::string_view prefix, const Range& range,
                   const Tensor& values, std::int64_t begin, std::vector<CheckpointSlice>& slices) {
  for_each_box(unit, range, [&](const ParameterSlice& slice, const HeldBox& held) {
    slices.push_back(slice_of(stream, prefix, slice, held, values, begin));
  });
}

}  // namespace lyceum
