#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "core/allocator.h"
#include "core/copy.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/activation.h"
#include "kernels/dropout.h"
#include "kernels/grouped_gemm.h"
#include "kernels/head_columns.h"
#include "kernels/noise.h"
#include "kernels/segments.h"
#include "kernels/uniform_choices.h"
#include "support/fields.h"
#include "support/tested_stream.h"

namespace lyceum {

/// Copies of spans of host memory on a device. Call note() for every span, upload(), translate() for each pointer that
/// a kernel uses, and after the kernel download(). Overlapping spans, such as an input that is also the output, share
/// one copy. A copy has the same offset from a multiple of 64 bytes as its original. There are guard bytes before and
/// after each copy, and download() expects them to be unchanged.
class DeviceMirror {
 public:
  explicit DeviceMirror(const Stream& stream) : stream_(stream) {}

  void note(const void* data, std::size_t bytes, bool written) {
    const auto* begin = static_cast<const std::byte*>(data);
    if (bytes) spans_.push_back({begin, begin + bytes, written, {}, nullptr});
  }

  void upload() {
    join_overlapping();
    for (Span& span : spans_) {
      const auto size = static_cast<std::size_t>(span.end - span.begin);
      span.memory = memory_of(stream_).allocate(size + 2 * guard + 64, MemoryKind::buffers);
      span.device = span.memory.get() + guard;
      while ((reinterpret_cast<std::uintptr_t>(span.device) ^ reinterpret_cast<std::uintptr_t>(span.begin)) % 64) {
        ++span.device;
      }
      std::vector<std::byte> image(size + 2 * guard, mark);
      std::copy(span.begin, span.end, image.begin() + guard);
      copy_to_device(stream_, span.device - guard, image.data(), image.size());
    }
  }

  /// Copies back the spans noted as written, and expects all other spans to be unchanged.
  void download() {
    for (const Span& span : spans_) {
      std::vector<std::byte> image(static_cast<std::size_t>(span.end - span.begin) + 2 * guard);
      copy_to_host(stream_, image.data(), span.device - guard, image.size());
      const auto marked = [](auto begin, auto end) {
        return std::all_of(begin, end, [](std::byte b) { return b == mark; });
      };
      EXPECT_TRUE(marked(image.begin(), image.begin() + guard)) << "written before an operand";
      EXPECT_TRUE(marked(image.end() - guard, image.end())) << "written after an operand";
      if (span.written) {
        std::copy(image.begin() + guard, image.end() - guard, const_cast<std::byte*>(span.begin));
      } else {
        EXPECT_TRUE(std::equal(span.begin, span.end, image.begin() + guard)) << "an input was written";
      }
    }
  }

  template <class T>
  T* translate(T* host) const {
    const auto* address = reinterpret_cast<const std::byte*>(host);
    for (const Span& span : spans_) {
      if (address >= span.begin && address < span.end)
        return reinterpret_cast<T*>(span.device + (address - span.begin));
    }
    return host;  // of an empty span
  }

 private:
  static constexpr std::ptrdiff_t guard = 256;
  static constexpr std::byte mark{0xa5};
  struct Span {
    const std::byte *begin, *end;
    bool written;
    std::shared_ptr<std::byte> memory;
    std::byte* device;
  };

  void join_overlapping() {
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    std::vector<Span> joined;
    for (Span& span : spans_) {
      if (!joined.empty() && span.begin < joined.back().end) {
        joined.back().end = std::max(joined.back().end, span.end);
        joined.back().written |= span.written;
      } else {
        joined.push_back(std::move(span));
      }
    }
    spans_ = std::move(joined);
  }

  const Stream& stream_;
  std::vector<Span> spans_;
};

/// The functions for members of a kernel description. note(member) registers the memory that it refers to;
/// point(member) lets it refer to the copy instead.
class MirroredFields {
 public:
  MirroredFields(DeviceMirror& mirror, const Segments* segments) : mirror_(mirror), segments_(segments) {}

  template <class T>
  void note(const T&) const {}
  template <class T>
  void note(const HeadColumns<T>& columns) const {
    note(columns.of);
  }
  template <class T>
  void note(const std::span<T>& values) const {
    mirror_.note(values.data(), values.size_bytes(), !std::is_const_v<T>);
  }
  /// For a list of matrices, which stays on the host: registers the memory of each matrix.
  template <class T>
  void note(const std::span<const Matrix<T>>& list) const {
    for (const Matrix<T>& m : list) note(m);
  }
  template <class T>
  void note(const Matrix<T>& m) const {
    if (m.size() > 0) mirror_.note(m.data, bytes<T>((m.rows - 1) * m.stride + m.cols), !std::is_const_v<T>);
  }
  void note(const TokenNoise& noise) const { note(noise.step); }
  void note(const DropoutMask& mask) const { note(mask.step); }
  void note(const UniformDraw& draw) const { note(draw.step); }
  void note(const Segments& segments) const { note(segments.begin), note(segments.rows); }
  template <class T>
  void note(const PickedRows<T>& picked) const {
    note(picked.x), note(picked.source);
  }
  template <class A>
  void note(const RowGates<A>& gates) const {
    note(gates.index), note(gates.gate), note(gates.d_gate);
  }
  template <class T>
  void note(const SegmentedMatrix<T>& m) const {
    std::int64_t end = 0;
    for (std::size_t e = 0; e < m.offset.size(); ++e) {
      end = std::max(end, m.offset[e] + (segments_->begin[e + 1] - segments_->begin[e]) * m.width[e]);
    }
    mirror_.note(m.data, bytes<T>(end), !std::is_const_v<T>);
    note(m.offset), note(m.width);
  }

  template <class T>
  void point(T&) const {}
  template <class T>
  void point(std::span<T>& values) const {
    values = {mirror_.translate(values.data()), values.size()};
  }
  template <class T>
  void point(std::span<const Matrix<T>>& list) {
    auto copies = std::make_shared<std::vector<Matrix<T>>>(list.begin(), list.end());
    for (Matrix<T>& m : *copies) point(m);
    list = *copies;
    lists_.push_back(std::move(copies));
  }
  template <class T>
  void point(Matrix<T>& m) const {
    m.data = mirror_.translate(m.data);
  }
  template <class T>
  void point(HeadColumns<T>& columns) const {
    point(columns.of);
  }
  void point(TokenNoise& noise) const { point(noise.step); }
  void point(DropoutMask& mask) const { point(mask.step); }
  void point(UniformDraw& draw) const { point(draw.step); }
  void point(Segments& segments) const { point(segments.begin), point(segments.rows); }
  template <class T>
  void point(PickedRows<T>& picked) const {
    point(picked.x), point(picked.source);
  }
  template <class A>
  void point(RowGates<A>& gates) const {
    point(gates.index), point(gates.gate), point(gates.d_gate);
  }
  template <class T>
  void point(SegmentedMatrix<T>& m) const {
    m.data = mirror_.translate(m.data);
    point(m.offset), point(m.width);
  }

 private:
  template <class T>
  static std::size_t bytes(std::int64_t elements) {
    return static_cast<std::size_t>(elements) * sizeof(T);
  }
  DeviceMirror& mirror_;
  const Segments* segments_;
  std::vector<std::shared_ptr<void>> lists_;
};

/// Calls run(stream, description) with copies of all operands on the device of tested_stream(), then copies the results
/// back to `description`. Expects that nothing else was written.
template <class Description, class Run>
void run_mirrored(const Description& description, Run&& run) {
  const Stream& stream = tested_stream();
  const Segments* segments = nullptr;
  for_each_field(description, [&](const auto& field) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, Segments>) segments = &field;
  });
  DeviceMirror mirror(stream);
  MirroredFields fields(mirror, segments);
  for_each_field(description, [&](const auto& field) { fields.note(field); });
  mirror.upload();
  Description on_device = description;
  for_each_field(on_device, [&](auto& field) { fields.point(field); });
  run(stream, on_device);
  mirror.download();
}

template <class Description>
void launch_mirrored(const Description& description) {
  run_mirrored(description, [](const Stream& stream, const Description& on_device) { launch(stream, on_device); });
}

}  // namespace lyceum
