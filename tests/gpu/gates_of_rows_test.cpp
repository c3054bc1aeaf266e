// Tests the steps before and after a kernel that computes gradients of gates tile by tile: gathering the gate of each
// row, and adding up the parts of the gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <variant>
#include <vector>

#include "core/copy.h"
#include "kernels/cuda/grouped_kernels.cuh"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

/// A problem with five gates. `of_rows`: the index of each row's gate, negative if it has none.
struct GatedRows {
  const Stream& stream = tested_stream();
  Tensor index, gate = tensor_of(stream, {5}, std::vector<float>{0.5f, 9, 0.25f, 9, -2});
  Tensor d_gate = tensor_of(stream, {5}, std::vector<float>(5, NAN));

  explicit GatedRows(const std::vector<std::int64_t>& of_rows)
      : index(tensor_of(stream, {std::ssize(of_rows)}, of_rows)) {}
  RowGates<float> gates() const {
    return {
        .index = index.span<const std::int64_t>(), .gate = gate.span<const float>(), .d_gate = d_gate.span<float>()};
  }
  const CudaStream& cuda() const { return std::get<CudaStream>(stream); }
};

TEST(GatesOfRows, AreGatheredAndPartsAddedInOrder) {
  const GatedRows rows({2, -1, 0, 4, -7});
  constexpr std::int32_t across = 3;
  const grouped::GatesOfRows made = grouped::gates_of_rows(rows.cuda(), "test", rows.gates(), across);
  std::vector<float> of_row(5), parts(15);
  copy_to_host(rows.stream, of_row.data(), made.gate, of_row.size() * sizeof(float));
  EXPECT_EQ(of_row, (std::vector<float>{0.25f, 0, 0.5f, -2, 0}));
  copy_to_host(rows.stream, parts.data(), made.d_gate, parts.size() * sizeof(float));
  EXPECT_EQ(parts, std::vector<float>(15, 0));
  ASSERT_EQ(made.across, across);
  parts = {1e8f, 1, -1e8f, 7, 7, 7, 1, 2, 3, -1e8f, 1e8f, 1, 7, 7, 7};
  copy_to_device(rows.stream, made.d_gate, parts.data(), parts.size() * sizeof(float));
  grouped::add_gate_gradients(rows.cuda(), "test", made, rows.gates());
  EXPECT_EQ(values_of<float>(rows.stream, rows.d_gate), (std::vector<float>{6, 0, 0, 0, 1}));
}

TEST(GatesOfRows, RefusesGatesThatAreNotThere) {
  const GatedRows rows({2, 5});
  const auto made = grouped::gates_of_rows(rows.cuda(), "test", rows.gates(), 1);
  EXPECT_THROW(rows.cuda().synchronise(), Error);
}

TEST(GatesOfRows, OfNoRows) {
  const GatedRows rows({});
  const auto made = grouped::gates_of_rows(rows.cuda(), "test", rows.gates(), 1);
  grouped::add_gate_gradients(rows.cuda(), "test", made, rows.gates());
  EXPECT_EQ(values_of<float>(rows.stream, rows.d_gate), std::vector<float>(5, 0));
}

}  // namespace
}  // namespace lyceum
