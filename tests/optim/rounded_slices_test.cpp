#include "optim/rounded_slices.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace lyceum {
namespace {

/// The element of a logical tensor and the key of its roundings.
using Place = std::pair<std::uint64_t, std::uint64_t>;

/// Returns the place of each element of a unit that is not padding, by the definition of ParameterSlice.
std::map<std::int64_t, Place> places(const ParameterUnit& unit, std::uint64_t seed) {
  std::map<std::int64_t, Place> all;
  for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
    for (const ParameterSlice& slice : unit.parameters()[p]->slices) {
      const int rank = slice.shape.rank();
      const std::int64_t columns = slice.extent[rank - 1], pitch = slice.pitch > 0 ? slice.pitch : columns;
      for (std::int64_t i = 0; i < slice.extent.size(); ++i) {
        std::int64_t rest = i, element = 0, stride = 1;
        for (int axis = rank - 1; axis >= 0; --axis) {
          element += (slice.offset[axis] + rest % slice.extent[axis]) * stride;
          rest /= slice.extent[axis];
          stride *= slice.shape[axis];
        }
        const std::int64_t at = unit.first_of(p) + slice.first + i / columns * pitch + i % columns;
        all[at] = {static_cast<std::uint64_t>(element), rounding_key(seed, slice.name)};
      }
    }
  }
  return all;
}

void expect_right_places(const ParameterUnit& unit) {
  for (const std::int64_t begin : {0, 1, 57}) {
    const std::vector<RoundedSlice> slices = rounded_slices(5, unit, begin);
    for (std::size_t s = 0; s + 1 < slices.size(); ++s) EXPECT_LE(slices[s].end, slices[s + 1].end);
    for (const auto& [at, place] : places(unit, 5)) {
      const std::int64_t i = at - begin;
      if (i < 0) continue;
      const RoundedSlice& slice = slices[static_cast<std::size_t>(slice_of(slices.data(), std::ssize(slices), i))];
      EXPECT_EQ((Place{slice.element(i), slice.key}), place) << "element " << at << " from " << begin;
    }
  }
}

TEST(RoundedSlices, OfWholeStackedAndShardedParameters) {
  ParameterUnit unit("unit", ParameterUnit::Group::dense, 1);
  unit.add(whole_parameter("norm", {40}, {}, false));  // 64 elements with padding
  unit.add(stacked_parameter("qkv", {{"q", 9, {3, 3}}, {"k", 4, {2, 2}, 3}, {"v", 2, {0, 0}, 1}}, 10, 0.1));
  unit.add(sharded_parameter("columns", {7, 50}, 1, {20, 11}, 0.1));
  unit.add(sharded_parameter("padded columns", {5, 30}, 1, {4, 9}, 0.1, 12));
  unit.add(sharded_parameter("rows", {70, 6}, 0, {30, 8}, 0.1));
  unit.add(stacked_vector("biases", {{"a", 12, {4, 5}, 6}, {"b", 3, {0, 3}}}, 0.0));
  expect_right_places(unit);
}

TEST(RoundedSlices, OfTensorsWithThreeDimensions) {
  ParameterUnit unit("unit", ParameterUnit::Group::expert, 1);
  Parameter blocks = whole_parameter("blocks", {3, 4, 5}, 0.1, true);
  unit.add(blocks);
  blocks.name = "part";
  blocks.shape = {2, 2, 4};
  blocks.slices = {
      {.name = "part", .shape = {6, 5, 7}, .offset = {3, 2, 1}, .extent = {2, 2, 3}, .first = 0, .pitch = 4}};
  unit.add(blocks);
  expect_right_places(unit);
}

TEST(RoundedSlices, OfAUnitWithoutElements) {
  const ParameterUnit unit("unit", ParameterUnit::Group::dense, 1);
  EXPECT_EQ(rounded_slices(5, unit, 0).size(), 1u);
}

}  // namespace
}  // namespace lyceum
