#include "parallel/expert/choice_heads.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/copy.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

constexpr std::int64_t tokens = 3, top_k = 2, groups = 2, row_width = 3, experts = 4;

std::shared_ptr<const ChoiceHeads> three_tokens(const Stream& stream) {
  const Tensor index = i32_tensor(stream, {tokens, top_k}, {3, 0, 0, 1, 3, 1});
  return std::make_shared<const ChoiceHeads>(stream, plan_rows(stream, experts, index), groups);
}

/// The columns of a token contain, for each key head, the heads of the first choice, then those of the second.
TEST(ChoiceHeads, LieByKeyHead) {
  const Stream& stream = tested_stream();
  const auto heads = three_tokens(stream);
  const std::vector<std::int64_t> pair_of_row = values_of<std::int64_t>(stream, heads->rows->copies.pair_of_row);
  const std::int64_t rows = std::ssize(pair_of_row), columns = groups * row_width;
  std::vector<double> values(static_cast<std::size_t>(rows * columns), NAN);  // padding must not reach any token
  const auto of_pair = [](std::int64_t pair, std::int64_t column) { return static_cast<double>(100 * pair + column); };
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t pair = pair_of_row[static_cast<std::size_t>(r)];
    for (std::int64_t c = 0; c < columns && pair >= 0; ++c) {
      values[static_cast<std::size_t>(r * columns + c)] = of_pair(pair, c);
    }
  }
  HeadsOfChoices::Saved saved;
  const Tensor by_token = HeadsOfChoices{heads}.forward(stream, saved, tensor_of(stream, {rows, columns}, values));
  EXPECT_EQ(by_token.shape(), (Shape{tokens, top_k * columns}));
  std::vector<double> expected;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t j = 0; j < top_k; ++j) {
        for (std::int64_t c = 0; c < row_width; ++c) expected.push_back(of_pair(t * top_k + j, g * row_width + c));
      }
    }
  }
  EXPECT_EQ(values_of<double>(stream, by_token), expected);
  RowsOfHeads::Saved back;
  for (double& value : values) value = std::isnan(value) ? 0 : value;
  EXPECT_EQ(values_of<double>(stream, RowsOfHeads{heads}.forward(stream, back, by_token)), values);
}

TEST(ChoiceHeads, HaveTheGradientsOfFiniteDifferences) {
  const auto heads = three_tokens(tested_stream());
  const std::int64_t rows = heads->rows->copies.pair_of_row.size();
  check_op({.name = "HeadsOfChoices",
            .inputs = {{rows, groups * row_width}},
            .run = [=](Tape& tape, const std::vector<Variable>& x, const ParameterUnit&) -> std::vector<Variable> {
              return {tape.apply(HeadsOfChoices{heads}, x[0])};
            }});
  check_op({.name = "RowsOfHeads",
            .inputs = {{tokens, top_k * groups * row_width}},
            .run = [=](Tape& tape, const std::vector<Variable>& x, const ParameterUnit&) -> std::vector<Variable> {
              return {tape.apply(RowsOfHeads{heads}, x[0])};
            }});
}

}  // namespace
}  // namespace lyceum
