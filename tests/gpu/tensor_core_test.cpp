// Tests each kernel for tensor cores separately.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/allocator.h"
#include "core/cuda_processors.h"
#include "kernels/activated_bank.h"
#include "kernels/attention_problem.h"
#include "kernels/cuda/attention_kernels.cuh"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/grouped_gemm.cuh"
#include "kernels/grouped_bank.h"
#include "kernels/product_kernel_counts.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using namespace test;
using grouped::Kernel;

/// Returns a function that computes a grouped product with the given kernel, on device copies of its operands. `left`:
/// see leave_processors().
auto by(Kernel kernel, int left = 0) {
  return [kernel, left](const auto& product) {
    run_mirrored(product, [kernel, left](const Stream& stream, const auto& on_device) {
      const CudaStream& cuda = std::get<CudaStream>(stream);
      leave_processors(cuda, left);
      grouped::run(cuda, on_device, kernel);
      leave_processors(cuda, 0);
    });
  };
}

/// Checks a product of rows. Padding rows of inputs must not be read, and runs on different numbers of
/// multiprocessors must give the same bits.
void check_rows(const Case& c, Kernel kernel, bool transpose) {
  auto bank = Bank<bfloat16>::made<bfloat16>(c.rows, c.in, c.out, transpose, false, c.gap);
  auto exact = Bank<double>::made<bfloat16>(c.rows, c.in, c.out, transpose, false, c.gap);
  poison(bank, bank.x_layout, bank.x);
  by(kernel)(bank.product(transpose));
  lyceum::run(CpuStream(4), exact.product(transpose));
  for (std::int64_t e = 0; e < bank.table.view().count(); ++e) {
    SCOPED_TRACE(testing::Message() << "expert " << e << (transpose ? " forward" : " dgrad"));
    expect_rounded<bfloat16>(bank.y_of(e), exact.y_of(e));
  }
  const std::vector<bfloat16> first = bank.y;
  by(kernel, 9)(bank.product(transpose));
  EXPECT_EQ(std::memcmp(first.data(), bank.y.data(), first.size() * sizeof(bfloat16)), 0) << "other bits";
}

void check_weight_grad(const Case& c, Kernel kernel) {
  auto bank = Bank<bfloat16>::made<bfloat16>(c.rows, c.in, c.out, false, true, c.gap);
  auto exact = Bank<double>::made<bfloat16>(c.rows, c.in, c.out, false, true, c.gap);
  poison(bank, bank.x_layout, bank.x);
  poison(bank, bank.y_layout, bank.y);
  by(kernel)(bank.weight_grad());
  lyceum::run(CpuStream(4), exact.weight_grad());
  for (std::size_t e = 0; e < bank.gradients.size(); ++e) {
    SCOPED_TRACE(testing::Message() << "gradient of expert " << e);
    expect_rounded<bfloat16>(bank.gradients[e], exact.gradients[e]);
    EXPECT_TRUE(bank.owned_gradients[e]->gaps_untouched());
  }
}

void check(const Case& c, Kernel kernel) {
  check_rows(c, kernel, true);
  check_rows(c, kernel, false);
  check_weight_grad(c, kernel);
}

/// Compares products of picked rows with the reference, and bit for bit with products of copies of these rows.
void check_picked(const Case& c, Kernel kernel) {
  expect_right_picked_products<bfloat16>(c, by(kernel));
  for (const Picking which : pickings) {
    auto picked = picking_bank<bfloat16, bfloat16>(c, which, true);
    auto copied = picking_bank<bfloat16, bfloat16>(c, which, false);
    for (Bank<bfloat16>* bank : {&picked, &copied}) run_picking(*bank, which, by(kernel));
    if (which == Picking::forward || which == Picking::dgrad) {
      EXPECT_EQ(std::memcmp(picked.y.data(), copied.y.data(), copied.y.size() * sizeof(bfloat16)), 0) << "other bits";
    }
    for (std::size_t e = 0; e < copied.gradients.size(); ++e) {
      const Matrix<float> one = picked.gradients[e], other = copied.gradients[e];
      for (std::int64_t r = 0; r < one.rows; ++r) {
        EXPECT_TRUE(std::equal(one.row(r), one.row(r) + one.cols, other.row(r))) << "other bits, expert " << e;
      }
    }
  }
}

/// Returns a function that runs a product with the given kernel, or an activation with its only kernel.
auto by_or_itself(Kernel kernel) {
  return [kernel](const auto& work) {
    if constexpr (requires(const CudaStream& stream) { grouped::run(stream, work, kernel); }) {
      by(kernel)(work);
    } else {
      launch_on(1, work);
    }
  };
}

/// Compares products fused with an activation with the formulas, and bit for bit with separate kernels.
void check_activations(const Case& c, Kernel kernel, bool picked) {
  for (const Activation kind : activations) {
    expect_right_forward<bfloat16>(kind, c, picked, [&](auto& bank) { by(kernel)(bank.forward()); });
    expect_bits_of_two_kernels<bfloat16>(kind, c, picked, by_or_itself(kernel));
    expect_right_backward<bfloat16>(kind, c, picked, [&](auto& bank) { by(kernel)(bank.backward()); });
  }
}

/// Shapes like those of a large model, but smaller: tiles of both widths, deep sums, a tile with few columns inside.
const Case wide{{700, 1, 130, 0, 300}, {1280, 1280, 640, 64, 1280}, {1728, 192, 864, 64, 200}, 8};
/// More experts than one launch of the planning kernel processes.
const Case many{Widths(300, 3), Widths(300, 24), Widths(300, 40), 8};

const Case wide_copies{wide.rows, Widths(5, 1280), wide.out, 8};

class TensorCoreGrouped : public testing::TestWithParam<Case> {};

TEST_P(TensorCoreGrouped, AutomaticAgreesWithTheReference) { check(GetParam(), Kernel::automatic); }
TEST_P(TensorCoreGrouped, MmaSyncAgreesWithTheReference) { check(GetParam(), Kernel::mma_sync); }
TEST_P(TensorCoreGrouped, PlainAgreesWithTheReference) { check(GetParam(), Kernel::plain); }

INSTANTIATE_TEST_SUITE_P(Cases, TensorCoreGrouped, testing::Values(uneven, all_empty, one, large, aligned, wide, many));

class TensorCorePicked : public testing::TestWithParam<Case> {};

TEST_P(TensorCorePicked, AutomaticAgreesWithCopies) { check_picked(GetParam(), Kernel::automatic); }
TEST_P(TensorCorePicked, MmaSyncAgreesWithCopies) { check_picked(GetParam(), Kernel::mma_sync); }
TEST_P(TensorCorePicked, PlainAgreesWithCopies) { check_picked(GetParam(), Kernel::plain); }

INSTANTIATE_TEST_SUITE_P(Cases, TensorCorePicked,
                         testing::Values(copies, aligned_copies, all_empty, one, wide_copies, many));

/// Kernels for sm_90 only, which require aligned rows.
class HopperGrouped : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!can_run_hopper_kernels(std::get<CudaStream>(tested_stream()))) GTEST_SKIP() << "no device of sm_90";
  }
};

TEST_P(HopperGrouped, CooperativeAgreesWithTheReference) { check(GetParam(), Kernel::cooperative); }
TEST_P(HopperGrouped, PingPongAgreesWithTheReference) { check(GetParam(), Kernel::ping_pong); }
TEST_P(HopperGrouped, ClusteredAgreesWithTheReference) {
  const auto in_clusters = [] { return product_kernel_counts(tested_stream())["wgmma in clusters"]; };
  const auto expect_in_clusters = [&](const auto& check_products) {
    const std::int64_t before = in_clusters();
    check_products();
    EXPECT_GT(in_clusters(), before);
  };
  for (const bool transpose : {true, false}) {
    expect_in_clusters([&] { check_rows(GetParam(), Kernel::clustered, transpose); });
  }
  expect_in_clusters([&] { check_weight_grad(GetParam(), Kernel::clustered); });
}

INSTANTIATE_TEST_SUITE_P(Cases, HopperGrouped, testing::Values(aligned, wide, many));

class HopperPicked : public HopperGrouped {};

TEST_P(HopperPicked, CooperativeAgreesWithCopies) { check_picked(GetParam(), Kernel::cooperative); }
TEST_P(HopperPicked, PingPongAgreesWithCopies) { check_picked(GetParam(), Kernel::ping_pong); }
TEST_P(HopperPicked, ClusteredAgreesWithCopies) { check_picked(GetParam(), Kernel::clustered); }

INSTANTIATE_TEST_SUITE_P(Cases, HopperPicked, testing::Values(aligned_copies, wide_copies, many));

TEST_P(TensorCoreGrouped, ActivationsAgreeWithTheFormulas) {
  check_activations(GetParam(), Kernel::automatic, false);
  check_activations(GetParam(), Kernel::mma_sync, false);
}
TEST_P(TensorCorePicked, ActivationsAgreeWithTheFormulas) {
  check_activations(GetParam(), Kernel::automatic, true);
  check_activations(GetParam(), Kernel::mma_sync, true);
}
TEST_P(HopperGrouped, ActivationsAgreeWithTheFormulas) {
  check_activations(GetParam(), Kernel::clustered, false);
  check_activations(GetParam(), Kernel::ping_pong, false);
  std::map<std::string, std::int64_t> kernels = product_kernel_counts(tested_stream());
  EXPECT_GT(kernels["wgmma in clusters with activation"], 0);
  EXPECT_GT(kernels["wgmma 128 x 192 with activation"], 0);
}
TEST_P(HopperPicked, ActivationsAgreeWithTheFormulas) {
  check_activations(GetParam(), Kernel::clustered, true);
  check_activations(GetParam(), Kernel::ping_pong, true);
}

template <class Attention>
void run_plain(const CudaStream& stream, const Attention& attention) {
  cuda::run_plain(stream, cuda::task_of(attention));
}
void run_plain(const CudaStream& stream, const AttentionBackward<bfloat16>& attention) {
  const auto bytes = static_cast<std::size_t>(cuda::delta_size(attention.shape)) * sizeof(float);
  const auto delta = stream.memory().allocate(bytes, MemoryKind::buffers);
  const auto task = cuda::task_of(attention, reinterpret_cast<float*>(delta.get()));
  cuda::run_delta(stream, task);
  cuda::run_plain(stream, task);
}

/// Compares sequences of many tiles with the plain kernels. Rows are aligned if `gap` is a multiple of 8.
template <class Kind>
void check_long(const AttentionShape& shape, std::int64_t gap, const std::vector<std::int32_t>& documents = {}) {
  SCOPED_TRACE(testing::Message() << "heads of " << shape.head_dim);
  const auto fast = make_attention<bfloat16>(shape, gap), plain = make_attention<bfloat16>(shape, gap);
  fast->first_keys = plain->first_keys = documents;
  launch_on(1, Kind::forward(*fast));
  launch_on(1, Kind::backward(*fast));
  const auto by_plain = [](const Stream& stream, const auto& on_device) {
    run_plain(std::get<CudaStream>(stream), on_device);
  };
  run_mirrored(Kind::forward(*plain), by_plain);
  run_mirrored(Kind::backward(*plain), by_plain);
  expect_near(fast->out.view(), plain->out.view(), 0.03);
  expect_near(fast->dq.view(), plain->dq.view(), 0.06);
  expect_near(fast->dk.view(), plain->dk.view(), 0.12);
  expect_near(fast->dv.view(), plain->dv.view(), 0.12);
}

template <class Kind>
class TensorCoreAttention : public testing::Test {};
TYPED_TEST_SUITE(TensorCoreAttention, AttentionKinds, AttentionKindNames);

TYPED_TEST(TensorCoreAttention, LongSequencesAgreeWithThePlainKernels) {
  check_long<TypeParam>({2, 600, 600, 4, 2, 64}, 8);
  check_long<TypeParam>({1, 1000, 1300, 4, 1, 128}, 8);
  check_long<TypeParam>({1, 300, 300, 3, 3, 24}, 3);
  check_long<TypeParam>({1, 300, 500, 2, 2, 192}, 8);
  check_long<TypeParam>({1, 600, 700, 4, 4, 192, 0, 128}, 8);
  check_long<TypeParam>({1, 300, 300, 2, 1, 190, 0, 100}, 3);
}

TYPED_TEST(TensorCoreAttention, LongSequencesOfDocumentsAgreeWithThePlainKernels) {
  const auto check = [](const AttentionShape& shape) { check_long<TypeParam>(shape, 8, documents_in(shape)); };
  check({2, 600, 600, 4, 2, 64});
  check({1, 1000, 1300, 4, 1, 128});
  check({1, 2100, 2100, 2, 2, 24});
  check({1, 1000, 1000, 2, 2, 192, 0, 128});
}

}  // namespace
}  // namespace lyceum
