#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_problem.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using test::attention_shapes;
using test::expect_near;
using test::expect_right_attention;
using test::make_attention;

template <class Kind>
class AttentionWindow : public testing::Test {};
TYPED_TEST_SUITE(AttentionWindow, test::AttentionKinds, test::AttentionKindNames);

/// Windows that are multiples of no tile, windows of all keys and longer ones, with and without documents.
TYPED_TEST(AttentionWindow, SeesOnlyItsWindow) {
  const auto run = [](const auto& attention) { launch_on(2, attention); };
  for (AttentionShape shape : attention_shapes) {
    for (const std::int64_t window : {1, 3, 64, 65, 131}) {
      if (window > 1 && window > 2 * shape.key_len) continue;
      shape.window = window;
      for (const auto& documents : {std::vector<std::int32_t>(), test::documents_in(shape)}) {
        expect_right_attention<TypeParam, float>(shape, 1e-5, run, documents);
        expect_right_attention<TypeParam, double>(shape, 1e-12, run, documents);
        expect_right_attention<TypeParam, bfloat16>(shape, 0.03, run, documents);
      }
    }
  }
  for (const std::int64_t window : {70, 257}) {
    const AttentionShape many{2, 300, 600, 2, 1, 8, window};
    expect_right_attention<TypeParam, float>(many, 1e-5, run);
    expect_right_attention<TypeParam, float>(many, 1e-5, run, test::documents_in(many));
  }
}

/// A query with a window of w gets what attention without a window to its last w keys alone gives.
TYPED_TEST(AttentionWindow, AWindowIsTheLastKeys) {
  constexpr std::int64_t length = 90;
  for (const std::int64_t window : {1, 7, 64, 89, 90}) {
    const auto whole = make_attention<double>({1, length, length, 4, 2, 6, window});
    launch_on(2, TypeParam::forward(*whole));
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{6}, std::int64_t{7}, std::int64_t{63}, length - 1}) {
      const std::int64_t keys = std::min(window, at + 1), first = at + 1 - keys;
      const auto one = make_attention<double>({1, 1, keys, 4, 2, 6});
      auto attention = TypeParam::forward(*one);
      attention.q = whole->q.view().rows_from(at, 1);
      attention.k = whole->k.view().rows_from(first, keys);
      attention.v = whole->v.view().rows_from(first, keys);
      launch_on(2, attention);
      expect_near(one->out.view(), whole->out.view().rows_from(at, 1), 1e-12);
      expect_near(TypeParam::kept(*one).view(), TypeParam::kept(*whole).view().rows_from(at, 1), 1e-12);
    }
  }
}

}  // namespace
}  // namespace lyceum
