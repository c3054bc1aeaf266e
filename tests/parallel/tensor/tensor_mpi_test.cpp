#include <gtest/gtest.h>

#include <numeric>

#include "core/random.h"
#include "parallel/tensor/linear_cross_entropy.h"
#include "parallel/tensor/token_layout.h"
#include "support/grid.h"
#include "support/op_check.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

/// An operation of all ranks of a group as one function: of every rank's input, or of one that all ranks hold alike, to
/// the sum of every rank's output with weights, or of one output that all ranks get alike.
struct RankedCase {
  std::string name;
  Shape input;  // of this rank
  bool same_input, same_output;
  std::function<Variable(Tape&, const Variable&)> run;
};

class RankedChecker {
 public:
  RankedChecker(const ProcessGroup& group, const RankedCase& op) : group_(group), op_(op), stream_(CpuStream(1)) {
    const std::int64_t own = op.input.size();
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(group.size()));
    group.all_gather(std::span(&own, 1), sizes);
    first_ = op.same_input ? 0 : std::accumulate(sizes.begin(), sizes.begin() + group.rank(), std::int64_t{0});
    size_ = op.same_input ? own : std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  }

  void check() {
    const Philox random(7, op_.name);
    std::vector<double> x(static_cast<std::size_t>(size_));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(i);
    std::vector<double> gradient(x.size(), 0.0);
    Tape tape(stream_);
    const Variable input = tape.leaf(input_of(x));
    const Variable output = op_.run(tape, input);
    tape.backward({{output, weights(output.value)}});
    const Tensor dx = tape.gradient(input);
    ASSERT_EQ(dx.shape(), op_.input);
    std::copy_n(dx.data<double>(), dx.size(), gradient.begin() + first_);
    if (op_.same_input) {
      std::vector<double> most = gradient;
      group_.all_reduce(std::span(most), Reduction::max);
      EXPECT_EQ(gradient, most) << "ranks differ";
    } else {
      group_.all_reduce(std::span(gradient));
    }
    expect_gradient([&](const std::vector<double>& at) { return value(at); }, x, gradient, 1e-7);
  }

 private:
  Tensor input_of(const std::vector<double>& x) const {
    const Tensor input = Tensor::empty(stream_, DType::f64, op_.input);
    std::copy_n(x.begin() + first_, input.size(), input.data<double>());
    return input;
  }

  Tensor weights(const Tensor& output) const {
    const Philox random(11, "weights" + std::to_string(op_.same_output ? 0 : group_.rank()));
    const Tensor w = Tensor::empty(stream_, DType::f64, output.shape());
    for (std::int64_t i = 0; i < w.size(); ++i) w.data<double>()[i] = random.normal(static_cast<std::uint64_t>(i));
    return w;
  }

  double value(const std::vector<double>& x) const {
    Tape tape(stream_, Tape::Mode::inference);
    const Tensor output = op_.run(tape, Variable{input_of(x)}).value;
    const Tensor w = weights(output);
    std::array<double, 1> sum{
        std::inner_product(w.data<double>(), w.data<double>() + w.size(), output.data<double>(), 0.0)};
    if (!op_.same_output) group_.all_reduce(std::span(sum));
    return sum[0];
  }

  const ProcessGroup& group_;
  RankedCase op_;
  Stream stream_;
  std::int64_t first_, size_;  // of this rank's input among all numbers; all numbers
};

class Collectives : public testing::Test {
 protected:
  template <class Op>
  void check(const std::string& name, bool same_input, bool same_output, bool shared_input) {
    for (const std::int64_t rows : {13, 3}) {  // the latter leaves some of eight ranks without rows
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

/// bf16 is added in f32 and rounded once: 256 and as many ones as ranks, of which bf16 alone would lose every one.
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

/// The head and its loss on words that the ranks of a group share.
class SharedVocabulary : public testing::Test {
 protected:
  static constexpr std::int64_t tokens = 5, hidden = 3, vocab = 19;

  /// Rows of this rank, or all of them, of one matrix [vocab, hidden] with room for its gradient.
  struct Table {
    Table(const Stream& stream, DType type, Range rows) : unit("unit", ParameterUnit::Group::dense) {
      weight = &unit.add(sharded_parameter("w", {vocab, hidden}, 0, rows, 0.7));
      unit.allocate(stream, type, true);
      unit.initialize(stream, 1);
    }
    ParameterUnit unit;
    Parameter* weight;
  };
  LinearCrossEntropy operation(const Table& table, std::int64_t chunk) const {
    return {
        .weight = table.weight, .targets = targets, .chunk = chunk, .group = &group, .words = words, .vocab = vocab};
  }
  Tensor input(DType type) const {
    const Tensor x = Tensor::empty(stream, type, {tokens, hidden});
    const Philox random(3, "rows");
    dispatch_float(type, [&]<class T>() {
      for (std::int64_t i = 0; i < x.size(); ++i) {
        x.data<T>()[i] = static_cast<T>(static_cast<float>(2 * random.normal(static_cast<std::uint64_t>(i))));
      }
    });
    return x;
  }

  ProcessGroup group = test_world(), alone = ProcessGroup::self();
  Stream stream = CpuStream(1);
  Range words = part_of(vocab, group.rank(), group.size());
  Tensor targets = i32_tensor(stream, {tokens}, {0, 18, 7, 7, 12});
};

TEST_F(SharedVocabulary, GradientIsThatOfFiniteDifferences) {
  const Table table(stream, DType::f64, words);
  for (const bool sequence : {false, true}) {
    const TokenLayout layout(group, sequence, tokens, tokens);
    for (const std::int64_t chunk : {0, 2}) {
      RankedChecker(group, {.name = "vocabulary",
                            .input = {sequence ? layout.own().count : tokens, hidden},
                            .same_input = !sequence || group.size() == 1,
                            .same_output = true,
                            .run =
                                [&](Tape& tape, const Variable& x) {
                                  return tape.apply(operation(table, chunk), layout.to_matrix(tape, x));
                                }})
          .check();
    }
  }
}

/// With all logits at once and in chunks, which send no more.
TEST_F(SharedVocabulary, IsThatOfTheWholeVocabulary) {
  for (const auto& [type, tolerance] : {std::pair{DType::f64, 1e-13}, {DType::f32, 3e-6}, {DType::bf16, 2e-2}}) {
    const Table all(stream, type, {0, vocab});
    LinearCrossEntropy serial = operation(all, 0);
    serial.group = &alone;
    serial.words = {0, vocab};
    Tape whole(stream);
    const Variable x = whole.leaf(input(type)), loss = whole.apply(serial, x);
    whole.backward({whole.seed(loss, 0.5)});
    for (const std::int64_t chunk : {0, 1, 3, 8}) {
      const Table own(stream, type, words);
      const std::int64_t sent = group.traffic().all_gather;
      Tape part(stream);
      const Variable y = part.leaf(input(type)), shared = part.apply(operation(own, chunk), y);
      part.backward({part.seed(shared, 0.5)});
      const std::int64_t numbers = group.size() > 1 ? 3 * tokens : 0;
      EXPECT_EQ(group.traffic().all_gather - sent, numbers * static_cast<std::int64_t>(size_of(accumulator_of(type))));
      dispatch_float(type, [&]<class T>() {
        using A = Accumulator<T>;
        const double expected = *loss.value.data<A>();
        EXPECT_TRUE(std::abs(*shared.value.data<A>() - expected) <= std::min(1e-5, tolerance) * expected);
        std::vector<double> dx;
        for (const T value : part.gradient(y).template span<T>()) dx.push_back(to_double(value));
        group.all_reduce(std::span(dx));
        for (std::int64_t i = 0; i < x.value.size(); ++i) {
          const double difference = dx[static_cast<std::size_t>(i)] - to_double(whole.gradient(x).data<T>()[i]);
          EXPECT_TRUE(std::abs(difference) <= tolerance);
        }
        const A* gradient = all.weight->gradient.data<A>() + words.first * hidden;
        for (std::int64_t i = 0; i < words.count * hidden; ++i) {
          EXPECT_TRUE(std::abs(own.weight->gradient.data<A>()[i] - gradient[i]) <= tolerance);
        }
      });
    }
  }
}

/// An infinite logit of one token and word: its rank alone sees it.
TEST_F(SharedVocabulary, ANanOfOneRankReachesAll) {
  for (const std::int64_t chunk : {0, 2}) {
    const Table table(stream, DType::f32, words);
    const Tensor x = input(DType::f32);
    for (std::int64_t t = 0; t < tokens; ++t) x.matrix<float>().row(t)[0] = t == 2 ? 1e30F : 0;
    for (float& w : table.weight->value.span<float>()) w = 0;
    if (words.end() == vocab) table.weight->value.matrix<float>().row(words.count - 1)[0] = 1e30F;
    Tape tape(stream);
    const Variable rows = tape.leaf(x), loss = tape.apply(operation(table, chunk), rows);
    EXPECT_TRUE(std::isnan(*loss.value.data<float>()));
    tape.backward({tape.seed(loss, 1)});
    const Matrix<float> gradient = tape.gradient(rows).matrix<float>();
    for (std::int64_t c = 0; c < hidden; ++c) {
      EXPECT_TRUE(std::isnan(gradient.row(2)[c]));
      EXPECT_FALSE(std::isnan(gradient.row(1)[c]));
    }
  }
}

TEST(TokenLayoutOnRanks, SharesOutRunsOfTokens) {
  const ProcessGroup group = test_world();
  const TokenLayout layout(group, false, 21, 7);
  EXPECT_EQ(layout.sequences(), 3);
  EXPECT_EQ(layout.own(), part_of(21, group.rank(), group.size()));
  EXPECT_EQ(layout.graded().has_value(), group.size() > 1);
  EXPECT_FALSE(TokenLayout(group, true, 21, 7).graded().has_value());
  EXPECT_THROW(TokenLayout(group, true, 20, 7), Error);
}

/// Every rank goes on with the sum as the others do, so a part's gradient is that of the sum.
TEST(TokenLayoutOnRanks, AddsUpWhatRanksMakeOfTheirRuns) {
  const ProcessGroup group = test_world();
  const TokenLayout layout(group, false, 21, 7);
  const Stream& stream = tested_stream();
  Tape tape(stream);
  const Variable part =
      tape.leaf(tensor_of(stream, {2, 3}, std::vector<double>(6, static_cast<double>(group.rank() + 1))));
  const Variable sum = layout.sum_of_runs(tape, part);
  const double ranks = group.size();
  EXPECT_EQ(values_of<double>(stream, sum.value), std::vector<double>(6, ranks * (ranks + 1) / 2));
  tape.backward({{sum, tensor_of(stream, {2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6})}});
  EXPECT_EQ(values_of<double>(stream, tape.gradient(part)), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace lyceum
