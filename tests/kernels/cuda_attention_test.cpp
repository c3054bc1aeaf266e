// The CUDA attention's own code, compiled for the host and run on an emulated block of threads.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/attention_problem.h"
#include "kernels/cpu/reference_attention.h"
#include "kernels/cuda/attention_forward.cuh"
#include "support/emulated_block.h"

namespace lyceum {
namespace {

using test::AttentionProblem;
using test::EmulatedBlock;
using test::EmulatedMachine;
using test::expect_near;
using test::make_attention;
using test::same_bits;

cuda::ForwardTask<bfloat16> task_of(const AttentionForward<bfloat16>& a, bool aligned) {
  return {a.shape, a.q, a.k, a.v, a.out, a.log_sum_exp, static_cast<float>(a.scale), aligned};
}

template <class Tiling>
void forward(AttentionProblem<bfloat16>& problem, EmulatedBlock::Order order, bool aligned) {
  const auto task = task_of(problem.forward(), aligned);
  EmulatedBlock block(Tiling::threads, Tiling::shared_bytes, order);
  const std::int64_t heads = task.shape.sequences * task.shape.heads;
  const cuda::BlockOrder blocks{heads, (task.shape.query_len + Tiling::rows - 1) / Tiling::rows, 2, true};
  for (std::int64_t i = 0; i < blocks.blocks(); ++i) {
    block.run([&](const EmulatedMachine& m) { cuda::attention_forward<Tiling>(m, task, blocks.at(i)); });
  }
}

TEST(CudaAttention, ForwardAgreesWithTheReference) {
  const AttentionShape shape{1, 131, 150, 2, 1, 32};
  const auto fast = make_attention<bfloat16>(shape, 8);
  const auto exact = make_attention<double, bfloat16>(shape);
  reference::run(CpuStream(1), exact->forward());
  forward<cuda::ForwardTiling<32, 4, 2, 64>>(*fast, EmulatedBlock::Order::ascending, true);
  expect_near(fast->out.view(), exact->out.view(), 0.02);
  expect_near(fast->log_sum_exp.view(), exact->log_sum_exp.view(), 1e-3);
}

}  // namespace
}  // namespace lyceum
