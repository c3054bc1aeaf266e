#include "kernels/gemm_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/copy.h"
#include "core/random.h"
#include "core/tensor.h"
#include "kernels/gemm.h"

namespace lyceum {
namespace {

using testing::HasSubstr;

/// Tests the choice of algorithms, also with the stand-in for CUDA. Each of its algorithms gives different bits, and
/// HOST_CUDA_FASTEST_GEMM sets which one is the fastest.
class GemmChoice : public testing::Test {
 protected:
  ~GemmChoice() override { unsetenv("HOST_CUDA_FASTEST_GEMM"); }

  static bool stand_in() { return gemm_device(CudaStream()).find("stand-in") != std::string::npos; }
  static void let_be_fastest(int proposal) { setenv("HOST_CUDA_FASTEST_GEMM", std::to_string(proposal).c_str(), 1); }
  static Stream timing_stream() {
    const Stream stream = CudaStream();
    set_gemm_choice_method(stream, GemmChoiceMethod::timed);
    return stream;
  }
};

struct Sizes {
  std::int64_t m, k, n;
  bool accumulate = false;
};

Tensor random_matrix(const Stream& stream, std::int64_t rows, std::int64_t cols, const char* name) {
  const Philox random(3, name);
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
  const Tensor matrix = Tensor::empty(stream, DType::f32, {rows, cols});
  copy_to_device(stream, matrix.span<float>(), std::span<const float>(values));
  return matrix;
}

/// Returns a · b of random matrices, added to random numbers with `accumulate`.
std::vector<float> product(const Stream& stream, const Sizes& sizes) {
  const Tensor a = random_matrix(stream, sizes.m, sizes.k, "a"), b = random_matrix(stream, sizes.k, sizes.n, "b"),
               c = random_matrix(stream, sizes.m, sizes.n, "c");
  launch(stream, Gemm<float>{.a = a.matrix<const float>(),
                             .b = b.matrix<const float>(),
                             .c = c.matrix<float>(),
                             .accumulate = sizes.accumulate});
  std::vector<float> values(static_cast<std::size_t>(c.size()));
  copy_to_host(stream, std::span(values), c.span<const float>());
  return values;
}

constexpr Sizes some[] = {{40, 300, 24}, {24, 177, 65, true}, {128, 64, 128}, {8, 2048, 12, true}};

TEST_F(GemmChoice, IsTheFirstProposalUnlessTimed) {
  let_be_fastest(1);
  const Stream stream = CudaStream();
  for (const Sizes& sizes : some) product(stream, sizes);
  const GemmChoices choices = gemm_choices(stream);
  EXPECT_EQ(choices.size(), std::size(some));
  for (const auto& [shape, algorithm] : choices) EXPECT_EQ(algorithm.proposal, 0);
}

TEST_F(GemmChoice, OfOneStreamGivesTheSameBitsOnAnother) {
  let_be_fastest(2);
  const Stream timing = timing_stream();
  std::vector<std::vector<float>> results;
  for (const Sizes& sizes : some) results.push_back(product(timing, sizes));
  const GemmChoices choices = gemm_choices(timing);
  ASSERT_EQ(choices.size(), std::size(some));
  if (stand_in()) {
    for (const auto& [shape, algorithm] : choices) EXPECT_EQ(algorithm.proposal, 2);
    EXPECT_NE(product(CudaStream(), some[0]), results[0]) << "another algorithm gives different bits";
  }

  let_be_fastest(1);
  const Stream pinned = timing_stream();
  pin_gemms(pinned, choices);
  for (std::size_t i = 0; i < std::size(some); ++i) EXPECT_EQ(product(pinned, some[i]), results[i]);
  EXPECT_EQ(gemm_choices(pinned), choices) << "nothing is timed again";
  product(pinned, {5, 6, 7});
  EXPECT_EQ(gemm_choices(pinned).size(), choices.size() + 1) << "a shape without a pinned algorithm";
}

TEST_F(GemmChoice, ThatIsPinnedReplacesAnother) {
  let_be_fastest(1);
  const Stream one = timing_stream(), other = CudaStream();
  const std::vector<float> wanted = product(one, some[0]);
  product(other, some[0]);
  product(other, some[1]);
  pin_gemms(other, gemm_choices(one));
  EXPECT_EQ(product(other, some[0]), wanted);
  const GemmChoices choices = gemm_choices(other);
  EXPECT_EQ(choices.size(), 2u) << "choices for other shapes are kept";
  for (const auto& [shape, algorithm] : gemm_choices(one)) EXPECT_EQ(choices.at(shape), algorithm);
}

/// Timing computes a product many times; the result must be added once.
TEST_F(GemmChoice, LeavesNoTraceInResults) {
  for (const Sizes& sizes : some) {
    const std::vector<float> expected = product(CudaStream(), sizes), timed = product(timing_stream(), sizes);
    ASSERT_EQ(timed.size(), expected.size());
    for (std::size_t i = 0; i < timed.size(); ++i) EXPECT_NEAR(timed[i], expected[i], 1e-3);
  }
}

/// There are two choices: one for the chunks of the sum, which are a batch, and one for the remainder.
TEST_F(GemmChoice, OfASumInPartsIsPinnedToo) {
  let_be_fastest(2);
  const Sizes sizes{16, 2085, 24, true};
  const Stream timing = timing_stream();
  const std::vector<float> wanted = product(timing, sizes);
  const GemmChoices choices = gemm_choices(timing);
  std::vector<std::pair<std::int64_t, std::int32_t>> depths;
  for (const auto& [shape, algorithm] : choices) depths.emplace_back(shape.k, shape.batch);
  EXPECT_THAT(depths, testing::UnorderedElementsAre(std::pair(1040, 2), std::pair(5, 1)));

  let_be_fastest(1);
  const Stream pinned = timing_stream();
  pin_gemms(pinned, choices);
  EXPECT_EQ(product(pinned, sizes), wanted);
  EXPECT_EQ(gemm_choices(pinned), choices) << "nothing is timed again";
}

/// The two halves are rows of one product.
TEST_F(GemmChoice, OfASplitWeightGradIsOneForBothHalves) {
  const Stream stream = CudaStream();
  const Tensor parts = Tensor::zeros(stream, DType::bf16, {4096, 6}), x = Tensor::zeros(stream, DType::bf16, {4096, 8}),
               dw = Tensor::zeros(stream, DType::f32, {3, 8});
  launch(stream,
         SplitWeightGrad{
             .parts = parts.matrix<const bfloat16>(), .x = x.matrix<const bfloat16>(), .dw = dw.matrix<float>()});
  const GemmChoices choices = gemm_choices(stream);
  ASSERT_EQ(choices.size(), 1u);
  const GemmShape& shape = choices.begin()->first;
  EXPECT_EQ(shape.m, 6);
  EXPECT_EQ(shape.k, 1024);
  EXPECT_EQ(shape.batch, 4);
}

TEST_F(GemmChoice, DoesWithoutTimesWhereMemoryIsShort) {
  let_be_fastest(1);
  constexpr std::size_t limit = (std::size_t{32} << 20) + (std::size_t{6} << 20);  // workspace and one result
  const Stream stream = CudaStream(0, limit);
  set_gemm_choice_method(stream, GemmChoiceMethod::timed);
  product(stream, {1024, 8, 1024, true});
  ASSERT_EQ(gemm_choices(stream).size(), 1u);
  EXPECT_EQ(gemm_choices(stream).begin()->second.proposal, 0);
}

TEST_F(GemmChoice, ThatTheLibraryRefusesIsNamed) {
  if (!stand_in()) GTEST_SKIP() << "the response of cuBLASLt to invalid algorithms is not documented";
  const Stream stream = CudaStream();
  product(stream, some[0]);
  GemmChoices choices = gemm_choices(stream);
  choices.begin()->second.bits[0] ^= 1;
  pin_gemms(stream, choices);
  try {
    product(stream, some[0]);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("algorithm for 40 x 300 x 24 from f32 to f32"));
  }
}

TEST_F(GemmChoice, IsAMatterOfGpusOnly) {
  const Stream cpu = CpuStream(1);
  set_gemm_choice_method(cpu, GemmChoiceMethod::timed);
  EXPECT_EQ(gemm_device(cpu), "");
  EXPECT_TRUE(gemm_choices(cpu).empty());
  EXPECT_THAT(gemm_device(CudaStream()), testing::ContainsRegex(".+, cuBLASLt [0-9]+"));
}

}  // namespace
}  // namespace lyceum
