// Properties that only the attention on the CPU has.
#include <gtest/gtest.h>

#include "kernels/attention_problem.h"
#include "kernels/native_bf16.h"

namespace lyceum {
namespace {

using test::make_attention;
using test::same_bits;

TEST(CpuAttention, NativeBf16AgreesWithTheReference) {
  const CpuStream stream(2);
  if (!test::force_native_bf16(stream)) return;
  for (const AttentionShape& shape : test::attention_shapes) {
    const auto by = [&](const auto& attention) { run(stream, attention); };
    test::expect_right_attention<test::Softmax, bfloat16>(shape, 0.04, by);
    test::expect_right_attention<test::Sticks, bfloat16>(shape, 0.04, by);
    test::expect_right_attention<test::Softmax, bfloat16>(shape, 0.04, by, test::documents_in(shape));
    test::expect_right_attention<test::Sticks, bfloat16>(shape, 0.04, by, test::documents_in(shape));
    AttentionShape windowed = shape;
    windowed.window = 40;
    test::expect_right_attention<test::Softmax, bfloat16>(windowed, 0.04, by);
  }
}

template <class Kind, class T>
void check_bits_do_not_depend_on_threads(std::int64_t window = 0) {
  const AttentionShape shape{2, 150, 150, 4, 2, 32, window};
  const auto one = make_attention<T>(shape), two = make_attention<T>(shape);
  for (const auto& [problem, threads] : {std::pair{one.get(), 1}, std::pair{two.get(), 2}}) {
    const CpuStream stream(threads);
    run(stream, Kind::forward(*problem));
    run(stream, Kind::backward(*problem));
  }
  EXPECT_TRUE(same_bits(one->out.view(), two->out.view()));
  EXPECT_TRUE(same_bits(one->dq.view(), two->dq.view()));
  EXPECT_TRUE(same_bits(one->dk.view(), two->dk.view()));
  EXPECT_TRUE(same_bits(one->dv.view(), two->dv.view()));
}

TEST(CpuAttention, BitsDoNotDependOnTheNumberOfThreads) {
  check_bits_do_not_depend_on_threads<test::Softmax, float>();
  check_bits_do_not_depend_on_threads<test::Softmax, bfloat16>();
  check_bits_do_not_depend_on_threads<test::Softmax, float>(70);
  check_bits_do_not_depend_on_threads<test::Sticks, float>();
  check_bits_do_not_depend_on_threads<test::Sticks, bfloat16>();
}

}  // namespace
}  // namespace lyceum
