#include <gtest/gtest.h>

#include <numeric>

#include "core/random.h"
#include "parallel/tensor/linear_cross_entropy.h"
#include "parallel/tensor/ranked_check.h"
#include "parallel/tensor/token_layout.h"
#include "support/grid.h"
#include "support/op_check.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

/// The head and its loss with a vocabulary that is divided among the ranks of a group.
class SharedVocabulary : public testing::Test {
 protected:
  static constexpr std::int64_t tokens = 5, hidden = 3, vocab = 19;

  /// A matrix [vocab, hidden], or this rank's rows of it, with its gradient.
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
    for (const auto& [chunk, result] : {std::pair{0, 0}, {2, 0}, {0, 1}, {2, 1}}) {  // result 1: the z-loss
      RankedChecker(group, {.name = "vocabulary",
                            .input = {sequence ? layout.own().count : tokens, hidden},
                            .same_input = !sequence || group.size() == 1,
                            .same_output = true,
                            .run =
                                [&](Tape& tape, const Variable& x) {
                                  LinearCrossEntropy op = operation(table, chunk);
                                  op.z = result == 1;
                                  return tape.apply(op, layout.to_matrix(tape, x))[static_cast<std::size_t>(result)];
                                }})
          .check();
    }
  }
}

/// Checked with all logits at once and in chunks, which must send the same number of bytes.
TEST_F(SharedVocabulary, IsThatOfTheWholeVocabulary) {
  for (const auto& [type, tolerance] : {std::pair{DType::f64, 1e-13}, {DType::f32, 3e-6}, {DType::bf16, 2e-2}}) {
    const Table all(stream, type, {0, vocab});
    LinearCrossEntropy serial = operation(all, 0);
    serial.group = &alone;
    serial.words = {0, vocab};
    Tape whole(stream);
    serial.z = true;
    const Variable x = whole.leaf(input(type));
    const auto [loss, z, none] = whole.apply(serial, x);
    whole.backward({whole.seed(loss, 0.5), whole.seed(z, 0.05)});
    for (const std::int64_t chunk : {0, 1, 3, 8}) {
      const Table own(stream, type, words);
      const std::int64_t sent = group.traffic().all_gather;
      Tape part(stream);
      const Variable y = part.leaf(input(type));
      LinearCrossEntropy op = operation(own, chunk);
      op.z = true;
      const auto [shared, shared_z, no_divergence] = part.apply(op, y);
      part.backward({part.seed(shared, 0.5), part.seed(shared_z, 0.05)});
      const std::int64_t numbers = group.size() > 1 ? 3 * tokens : 0;
      EXPECT_EQ(group.traffic().all_gather - sent, numbers * static_cast<std::int64_t>(size_of(accumulator_of(type))));
      dispatch_float(type, [&]<class T>() {
        using A = Accumulator<T>;
        const double expected = *loss.value.data<A>();
        EXPECT_TRUE(std::abs(*shared.value.data<A>() - expected) <= std::min(1e-5, tolerance) * expected);
        const double expected_z = *z.value.data<A>();
        EXPECT_TRUE(std::abs(*shared_z.value.data<A>() - expected_z) <= std::min(1e-5, tolerance) * expected_z);
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

/// Two copies of two samples of two tokens. The ranks exchange two more numbers per pair.
TEST_F(SharedVocabulary, TheDivergenceOfCopiesIsThatOfTheWholeVocabulary) {
  constexpr std::int64_t pair_len = 2, rows = 4 * pair_len;
  const auto with_copies = [&](const Table& table) {
    LinearCrossEntropy op = operation(table, 0);
    op.targets = i32_tensor(stream, {rows}, {0, 18, 0, 18, 7, -1, 7, -1});
    op.z = true;
    op.pair_len = pair_len;
    return op;
  };
  for (const auto& [type, tolerance] : {std::pair{DType::f64, 1e-13}, {DType::f32, 3e-6}, {DType::bf16, 2e-2}}) {
    const Tensor x = Tensor::empty(stream, type, {rows, hidden});
    dispatch_float(type, [&]<class T>() {
      const Philox random(5, "rows");
      for (std::int64_t i = 0; i < x.size(); ++i) {
        x.data<T>()[i] = static_cast<T>(static_cast<float>(2 * random.normal(static_cast<std::uint64_t>(i))));
      }
    });
    const auto run = [&](const LinearCrossEntropy& op, Tape& tape) {
      const Variable in = tape.leaf(x);
      const auto [loss, z, divergence] = tape.apply(op, in);
      tape.backward({tape.seed(loss, 0.5), tape.seed(z, 0.05), tape.seed(divergence, 0.3)});
      return std::pair(in, divergence);
    };
    const Table all(stream, type, {0, vocab}), own(stream, type, words);
    LinearCrossEntropy serial = with_copies(all);
    serial.group = &alone;
    serial.words = {0, vocab};
    Tape whole(stream), part(stream);
    const auto [in, expected] = run(serial, whole);
    const auto [own_in, shared] = run(with_copies(own), part);
    dispatch_float(type, [&]<class T>() {
      using A = Accumulator<T>;
      const double divergence = *expected.value.template data<A>();
      EXPECT_GT(divergence, 1e-3);
      EXPECT_TRUE(std::abs(*shared.value.template data<A>() - divergence) <= std::min(1e-5, tolerance) * divergence);
      std::vector<double> dx;
      for (const T value : part.gradient(own_in).template span<T>()) dx.push_back(to_double(value));
      group.all_reduce(std::span(dx));
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const double difference = dx[static_cast<std::size_t>(i)] - to_double(whole.gradient(in).template data<T>()[i]);
        EXPECT_TRUE(std::abs(difference) <= tolerance);
      }
      const A* gradient = all.weight->gradient.template data<A>() + words.first * hidden;
      for (std::int64_t i = 0; i < words.count * hidden; ++i) {
        EXPECT_TRUE(std::abs(own.weight->gradient.template data<A>()[i] - gradient[i]) <= tolerance);
      }
    });
  }
}

/// The logit of one token and one word is infinite, which only its rank notices at first.
TEST_F(SharedVocabulary, ANanOfOneRankReachesAll) {
  for (const std::int64_t chunk : {0, 2}) {
    const Table table(stream, DType::f32, words);
    const Tensor x = input(DType::f32);
    for (std::int64_t t = 0; t < tokens; ++t) x.matrix<float>().row(t)[0] = t == 2 ? 1e30F : 0;
    for (float& w : table.weight->value.span<float>()) w = 0;
    if (words.end() == vocab) table.weight->value.matrix<float>().row(words.count - 1)[0] = 1e30F;
    Tape tape(stream);
    const Variable rows = tape.leaf(x), loss = tape.apply(operation(table, chunk), rows)[0];
    EXPECT_TRUE(std::isnan(*loss.value.data<float>()));
    tape.backward({tape.seed(loss, 1)});
    const Matrix<float> gradient = tape.gradient(rows).matrix<float>();
    for (std::int64_t c = 0; c < hidden; ++c) {
      EXPECT_TRUE(std::isnan(gradient.row(2)[c]));
      EXPECT_FALSE(std::isnan(gradient.row(1)[c]));
    }
  }
}

}  // namespace
}  // namespace lyceum
