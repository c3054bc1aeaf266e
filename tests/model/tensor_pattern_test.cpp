#include "model/tensor_pattern.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace lyceum {
namespace {

using Ranges = std::vector<Range>;

TEST(TensorPattern, MatchesNamesWithWildcards) {
  const std::string name = "model/layers/12/mlp/experts/3/gate_proj/weight";
  for (const char* text : {"*", "model/layers/*/mlp/experts/3/*", "model/layers/1[0-9]/*", "*/gate_proj/weight",
                           "model/layers/?2/*[2:]", "*/experts/[!4]/*"}) {
    EXPECT_TRUE(TensorPattern(text).matches(name)) << text;
  }
  for (const char* text : {"model/layers/1/*", "gate_proj", "model/layers/*/mlp/experts/3", "*/experts/[4-9]/*", ""}) {
    EXPECT_FALSE(TensorPattern(text).matches(name)) << text;
  }
}

TEST(TensorPattern, NamesRows) {
  EXPECT_EQ(TensorPattern("a").rows_of(12), (Range{0, 12}));
  EXPECT_EQ(TensorPattern("a[8:]").rows_of(12), (Range{8, 4}));
  EXPECT_EQ(TensorPattern("a[:8]").rows_of(12), (Range{0, 8}));
  EXPECT_EQ(TensorPattern("a[3:5]").rows_of(12), (Range{3, 2}));
  EXPECT_EQ(TensorPattern("a[3:50]").rows_of(12), (Range{3, 9}));
  for (const char* none : {"a[12:]", "a[5:5]", "a[7:5]", "a[:0]"}) EXPECT_EQ(TensorPattern(none).rows_of(12).count, 0);
  for (const char* wrong : {"a[x:]", "a[1:y]", "a[-1:]", "a[1:2", "a[1:2]b", "a[99999999999999999999:]"}) {
    EXPECT_THAT(error_of([&] { TensorPattern pattern(wrong); }, ExitCode::usage), testing::HasSubstr(wrong));
  }
}

/// Parameters that hold some rows, or some columns, or two stacked matrices.
TEST(TensorPattern, FindsElementsOfAParameter) {
  const Parameter rows = sharded_parameter("w", {10, 4}, 0, {6, 3}, 1);
  EXPECT_EQ(named_elements(rows, tensor_patterns({"w[8:]"})), (Ranges{{8, 4}}));
  EXPECT_EQ(named_elements(rows, tensor_patterns({"w[:7]", "w[8:9]"})), (Ranges{{0, 4}, {8, 4}}));
  EXPECT_EQ(named_elements(rows, tensor_patterns({"w[:7]", "w[5:8]", "*[1:2]"})), (Ranges{{0, 8}}));
  EXPECT_EQ(named_elements(rows, tensor_patterns({"w[:6]", "v"})), Ranges{});
  const Parameter columns = sharded_parameter("w", {10, 4}, 1, {1, 2}, 1);
  EXPECT_EQ(named_elements(columns, tensor_patterns({"w[8:]"})), (Ranges{{16, 4}}));
  const Parameter stacked = stacked_parameter("qkv", {{"q", 8, {4, 4}}, {"k", 4, {2, 2}}}, 3, 1);
  EXPECT_EQ(named_elements(stacked, tensor_patterns({"k"})), (Ranges{{12, 6}}));
  EXPECT_EQ(named_elements(stacked, tensor_patterns({"q[5:]", "k"})), (Ranges{{3, 15}}));
  // Rows of 3 columns, padded to 5, and a matrix of 2 rows, padded to 4.
  const Parameter padded = sharded_parameter("w", {10, 4}, 1, {1, 3}, 1, 5);
  EXPECT_EQ(named_elements(padded, tensor_patterns({"w[8:]"})), (Ranges{{40, 10}}));
  EXPECT_EQ(unnamed_elements(padded, tensor_patterns({"w[8:]"})), (Ranges{{0, 40}}));
  const Parameter gate_up = stacked_parameter("gate_up", {{"gate", 2, {0, 2}, 4}, {"up", 2, {0, 2}, 4}}, 3, 1);
  EXPECT_EQ(gate_up.shape, (Shape{8, 3}));
  EXPECT_EQ(unnamed_elements(gate_up, tensor_patterns({"gate", "up"})), Ranges{});
  EXPECT_EQ(unnamed_elements(gate_up, tensor_patterns({"up[1:]"})), (Ranges{{0, 6}, {12, 3}}));
  EXPECT_EQ(other_elements(18, {{3, 4}, {9, 2}}), (Ranges{{0, 3}, {7, 2}, {11, 7}}));
  EXPECT_EQ(other_elements(18, {{0, 18}}), Ranges{});
  EXPECT_EQ(other_elements(18, {}), (Ranges{{0, 18}}));
}

}  // namespace
}  // namespace lyceum
