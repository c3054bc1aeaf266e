#include <gtest/gtest.h>

#include "parallel/tensor/collectives.h"
#include "parallel/tensor/ranked_check.h"
#include "support/op_check.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

class Collectives : public testing::Test {
 protected:
  template <class Op>
  void check(const std::string& name, bool same_input, bool same_output, bool shared_input) {
    for (const std::int64_t rows : {13, 3}) {  // with 3 rows, some of eight ranks have none
      const RowShards shards = RowShards::even(group, rows);
      EXPECT_EQ(shards.total(), rows);
      const std::int64_t own = shared_input ? shards.own().count : rows;
      RankedChecker(group, {.name = name,
                            .input = {own, 2},
                            .same_input = same_input,
                            .same_output = same_output,
                            .run = [&](Tape& tape, const Variable& x) { return tape.apply(Op{shards}, x); }})
          .check();
    }
  }
  ProcessGroup group = test_world();
};

TEST_F(Collectives, IdentityAllReduce) { check<IdentityAllReduce>("f", true, false, false); }
TEST_F(Collectives, AllReduceIdentity) { check<AllReduceIdentity>("g", false, true, false); }
TEST_F(Collectives, AllGatherReduceScatter) { check<AllGatherReduceScatter>("f run", false, false, true); }
TEST_F(Collectives, ReduceScatterAllGather) { check<ReduceScatterAllGather>("g run", false, false, false); }
TEST_F(Collectives, SliceAllGather) { check<SliceAllGather>("slice", true, false, false); }
TEST_F(Collectives, AllGatherSlice) { check<AllGatherSlice>("gather", false, true, true); }

TEST_F(Collectives, RefuseRowsOfAnotherNumber) {
  const Stream stream = CpuStream(1);
  const RowShards shards = RowShards::even(group, 13);
  EXPECT_THROW(all_reduce(stream, shards, Tensor::zeros(stream, DType::f32, {12, 2})), Error);
  EXPECT_THROW(slice(stream, shards, Tensor::zeros(stream, DType::f32, {14, 2})), Error);
  EXPECT_THROW(reduce_scatter(stream, shards, Tensor::zeros(stream, DType::f32, {12, 2})), Error);
  EXPECT_THROW(all_gather(stream, shards, Tensor::zeros(stream, DType::f32, {shards.own().count + 1, 2})), Error);
}

/// bf16 is summed in f32 and rounded once: 256 plus one 1 per rank, each of which would be lost in bf16.
TEST_F(Collectives, SumsOfBf16AreRoundedOnce) {
  const Stream stream = CpuStream(1);
  const std::int64_t ranks = group.size();
  const RowShards shards = RowShards::even(group, 2 * ranks);
  const Tensor x = Tensor::empty(stream, DType::bf16, {2 * ranks, 3});
  for (bfloat16& value : x.span<bfloat16>()) value = bfloat16(group.rank() == 0 ? 257.0f : 1.0f);
  const bfloat16 expected(static_cast<float>(static_cast<float>(bfloat16(257.0f)) + static_cast<float>(ranks - 1)));
  for (const Tensor& sum : {all_reduce(stream, shards, x), reduce_scatter(stream, shards, x)}) {
    for (const bfloat16 value : sum.span<bfloat16>()) EXPECT_EQ(value.bits, expected.bits);
  }
  for (const bfloat16 value : x.span<bfloat16>()) EXPECT_EQ(static_cast<float>(value), group.rank() ? 1.0f : 256.0f);
}

}  // namespace
}  // namespace lyceum
