#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/manifest.h"

namespace lyceum {

/// A logical tensor for tests. Element i of the flat tensor is test_value(name, i): arbitrary bits, which include NaN
/// with payloads, infinities and denormals.
struct TestTensor {
  std::string name;
  Shape shape;
};

inline float test_value(const std::string& name, std::int64_t index) {
  std::uint64_t word = 0x9e3779b97f4a7c15u * (static_cast<std::uint64_t>(index) + 1);
  for (const char c : name) word = (word ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return std::bit_cast<float>(static_cast<std::uint32_t>(word >> 32 ^ word));
}

/// Returns the values of a box of the tensor in row-major order, by index arithmetic that shares no code with the code
/// under test.
inline std::vector<float> test_values(const TestTensor& tensor, const Box& box) {
  std::vector<float> values;
  const int rank = tensor.shape.rank();
  for (std::int64_t flat = 0; flat < tensor.shape.size(); ++flat) {
    std::int64_t rest = flat;
    bool within = true;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const std::int64_t at = rest % tensor.shape[axis];
      rest /= tensor.shape[axis];
      within = within && at >= box.offset[axis] && at < box.offset[axis] + box.extent[axis];
    }
    if (within) values.push_back(test_value(tensor.name, flat));
  }
  return values;
}

/// The slices of a checkpoint that one rank writes. This object owns their values.
class TestSlices {
 public:
  void add(const TestTensor& tensor, const Box& box) {
    values_.push_back(test_values(tensor, box));
    slices_.push_back({tensor.name, tensor.shape, box, values_.back().data()});
  }
  void add(const TestTensor& tensor) { add(tensor, Box::whole(tensor.shape)); }
  /// Sets all values to 0, for example while a copy of them is being written.
  void clear() {
    for (std::vector<float>& values : values_) std::ranges::fill(values, 0.f);
  }
  const std::vector<CheckpointSlice>& get() const { return slices_; }
  std::vector<CheckpointSlice>& get() { return slices_; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<CheckpointSlice> slices_;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

/// Returns the values of a box as the reader reads it. Elements that the reader does not fill are −12345, which no test
/// tensor contains.
inline std::vector<float> read_box(const CheckpointReader& reader, const std::string& name, const Box& box) {
  std::vector<float> values(static_cast<std::size_t>(box.extent.size()), -12345.f);
  reader.read(name, box, values.data());
  return values;
}

/// Expects two intact checkpoints with equal steps, states and tensors, in files of equal names and sizes. Bytes of the
/// files may differ, since HDF5 stores when a group was created.
inline void expect_same_checkpoint(const std::filesystem::path& a, const std::filesystem::path& b) {
  const CheckpointReader one(a), other(b);
  EXPECT_EQ(one.problem(), "");
  EXPECT_EQ(other.problem(), "");
  EXPECT_EQ(one.header().step, other.header().step);
  EXPECT_EQ(one.header().trainer_state, other.header().trainer_state);
  const Manifest manifest = read_manifest(a), other_manifest = read_manifest(b);
  ASSERT_EQ(manifest.files.size(), other_manifest.files.size());
  for (std::size_t f = 0; f < manifest.files.size(); ++f) {
    EXPECT_EQ(manifest.files[f].name, other_manifest.files[f].name);
    EXPECT_EQ(manifest.files[f].digest.bytes, other_manifest.files[f].digest.bytes);
  }
  ASSERT_EQ(one.tensors().size(), other.tensors().size());
  for (std::size_t t = 0; t < one.tensors().size(); ++t) {
    const std::string& name = one.tensors()[t].name;
    const Shape& shape = one.tensors()[t].shape;
    EXPECT_EQ(name, other.tensors()[t].name);
    EXPECT_EQ(shape, other.tensors()[t].shape);
    EXPECT_TRUE(same_bits(read_box(one, name, Box::whole(shape)), read_box(other, name, Box::whole(shape)))) << name;
  }
}

}  // namespace lyceum
