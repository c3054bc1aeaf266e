#include "kernels/adamw.h"

#include "core/device_table.h"
#include "support/grid.h"
#include "support/launch_on.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

constexpr double lr = 3e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, clip = 0.7;

Stream stream_of(int threads) { return tests_run_on_gpu() ? tested_stream() : CpuStream(threads); }

/// An array in the memory of the tested device, with access from the host.
template <class A>
class Mirrored {
 public:
  Mirrored(const Stream& stream, const Grid<A>& start) : stream_(stream), device_(table_of(stream, start.values)) {}
  A* data() const { return reinterpret_cast<A*>(device_.raw()); }
  void flip(std::int64_t element, int bit) {
    unsigned char byte = 0;
    auto* const place = reinterpret_cast<unsigned char*>(data() + element) + bit / 8;
    copy_to_host(stream_, &byte, place, 1);
    byte = static_cast<unsigned char>(byte ^ (1u << bit % 8));
    copy_to_device(stream_, place, &byte, 1);
  }
  Grid<A> now() const {
    Grid<A> grid(1, device_.size() / static_cast<std::int64_t>(sizeof(A)));
    copy_to_host(stream_, grid.values.data(), device_.raw(), device_.bytes());
    return grid;
  }

 private:
  Stream stream_;
  Tensor device_;
};

/// Tensors of the given sizes with their optimizer state, in one flat memory with gaps of `gap` elements before,
/// between and after the tensors, and the updates to test.
template <class T>
struct Problem {
  using A = Accumulator<T>;
  Stream stream;
  std::vector<std::int64_t> sizes, begin, first_block;
  std::int64_t blocks = 0, length = 0;
  std::vector<std::vector<UpdateSpan>> decay_spans;  // one list per tensor
  std::vector<std::int64_t> offsets;                 // weight_offsets of all tensors, then update_offsets
  Mirrored<A> master, exp_avg, exp_avg_sq;
  Mirrored<T> weight;
  std::vector<double> sums;                           // result of the last step
  std::vector<std::uint32_t> digests, damaged = {0};  // UpdateDigests; digests empty: no checks
  std::vector<double> head_factors;

  Problem(int threads, std::vector<std::int64_t> sizes, std::int64_t gap = 0)
      : stream(stream_of(threads)),
        sizes(std::move(sizes)),
        length(lay_out(gap)),
        master(stream, Grid<A>::random(1, length, "weight")),
        exp_avg(stream, Grid<A>::zeros(1, length)),
        exp_avg_sq(stream, Grid<A>::zeros(1, length)),
        weight(stream, Grid<T>(1, length)) {
    for (std::size_t t = 0; t < this->sizes.size(); ++t) {
      decay_spans.push_back({{.end = this->sizes[t], .weight_decay = decay}});
      offsets.push_back(first_block[t]);
    }
    for (std::size_t t = 0; t < this->sizes.size(); ++t) offsets.push_back(blocks + first_block[t]);
  }
  std::int64_t lay_out(std::int64_t gap) {
    std::int64_t at = gap;
    for (const std::int64_t size : sizes) {
      begin.push_back(at);
      first_block.push_back(blocks);
      at += size + gap;
      blocks += flat_blocks_of(size);
    }
    return at;
  }

  Grid<A> gradient(int step) const { return Grid<A>::random(1, length, "gradient " + std::to_string(step)); }
  void step(int n, const Grid<A>& gradient, bool skip = false) {
    const Mirrored<A> gradients(stream, gradient);
    std::vector<UpdatedTensor<T, AdamW::states>> rows;
    std::vector<UpdateSpan> all_spans;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      const std::int64_t at = begin[t];
      rows.push_back({master.data() + at,
                      {exp_avg.data() + at, exp_avg_sq.data() + at},
                      gradients.data() + at,
                      weight.data() + at,
                      sizes[t],
                      first_block[t],
                      std::ssize(all_spans)});
      all_spans.insert(all_spans.end(), decay_spans[t].begin(), decay_spans[t].end());
    }
    sums.assign(static_cast<std::size_t>(2 * blocks), poison<double>());
    const Tensor row_table = table_of(stream, rows), span_table = table_of(stream, all_spans),
                 offset_table = table_of(stream, offsets), sum_table = table_of(stream, sums),
                 digest_table = table_of(stream, digests), damage_table = table_of(stream, damaged),
                 factor_table = table_of(stream, head_factors);
    const Tensor numbers =
                     table_of(stream, std::vector<AdamW::Numbers>{{.lr = lr,
                                                                   .rate = lr / (1 - std::pow(beta1, n)),
                                                                   .inverse_bias2 = 1 / (1 - std::pow(beta2, n))}}),
                 verdict =
                     table_of(stream, std::vector<StepVerdict>{{.gradient_scale = clip, .skip = skip ? 1.0 : 0.0}});
    const auto all_offsets = rows_of<std::int64_t>(offset_table);
    launch(stream,
           UpdateWeights<T, AdamW>{
               .tensors = rows_of<UpdatedTensor<T, AdamW::states>>(row_table),
               .spans = rows_of<UpdateSpan>(span_table),
               .blocks = blocks,
               .rule = {.beta1 = beta1, .beta2 = beta2, .eps = eps, .numbers = rows_of<AdamW::Numbers>(numbers)},
               .verdict = rows_of<StepVerdict>(verdict),
               .weight_offsets = all_offsets.first(sizes.size()),
               .update_offsets = all_offsets.subspan(sizes.size()),
               .sums = {reinterpret_cast<double*>(sum_table.raw()), sums.size()},
               .digests = {words_of(digest_table), words_of(damage_table)},
               .head_factors = rows_of<double>(factor_table)});
    copy_to_host(stream, sums.data(), sum_table.raw(), sum_table.bytes());
    read_digests(digest_table, damage_table);
  }
  /// Runs CheckDigests on all tensors.
  void check(bool renew) {
    std::vector<UpdatedTensor<T, AdamW::states>> rows;
    std::vector<UpdateSpan> all_spans;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      const std::int64_t at = begin[t];
      rows.push_back({master.data() + at,
                      {exp_avg.data() + at, exp_avg_sq.data() + at},
                      nullptr,
                      weight.data() + at,
                      sizes[t],
                      first_block[t],
                      std::ssize(all_spans)});
      all_spans.insert(all_spans.end(), decay_spans[t].begin(), decay_spans[t].end());
    }
    digests.resize(static_cast<std::size_t>(blocks));
    const Tensor row_table = table_of(stream, rows), span_table = table_of(stream, all_spans),
                 digest_table = table_of(stream, digests), damage_table = table_of(stream, damaged);
    launch(stream, CheckDigests<T, AdamW::states>{.tensors = rows_of<UpdatedTensor<T, AdamW::states>>(row_table),
                                                  .spans = rows_of<UpdateSpan>(span_table),
                                                  .blocks = blocks,
                                                  .digests = {words_of(digest_table), words_of(damage_table)},
                                                  .renew = renew});
    read_digests(digest_table, damage_table);
  }
  static std::span<std::uint32_t> words_of(const Tensor& table) {
    return {reinterpret_cast<std::uint32_t*>(table.raw()), static_cast<std::size_t>(table.bytes()) / 4};
  }
  void read_digests(const Tensor& digest_table, const Tensor& damage_table) {
    copy_to_host(stream, digests.data(), digest_table.raw(), digest_table.bytes());
    copy_to_host(stream, damaged.data(), damage_table.raw(), damage_table.bytes());
  }
  bool same_bits(const Problem& other) const {
    return master.now().same_bits(other.master.now()) && exp_avg.now().same_bits(other.exp_avg.now()) &&
           exp_avg_sq.now().same_bits(other.exp_avg_sq.now()) && weight.now().same_bits(other.weight.now());
  }
  /// Returns the weight decay of element i of tensor t.
  double decay_of(std::size_t t, std::int64_t i) const {
    return std::ranges::find_if(decay_spans[t], [&](const UpdateSpan& span) { return span.end > i; })->weight_decay;
  }
};

/// Returns one weight after updates with these gradients, by Algorithm 2 of the paper with the schedule in the rate.
double by_hand(double w, const std::vector<double>& gradients, double weight_decay) {
  double m = 0, v = 0;
  for (std::size_t n = 1; n <= gradients.size(); ++n) {
    const double g = gradients[n - 1] * clip;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, n)), v_hat = v / (1 - std::pow(beta2, n));
    w -= lr * (m_hat / (std::sqrt(v_hat) + eps) + weight_decay * w);
  }
  return w;
}

template <class T>
class AdamWTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(AdamWTest, Types);

const std::vector<std::int64_t> uneven{0, 1, 7, 1024, 0, 0, 1025, 33, 5000, 0};

/// Sets decay spans that change within blocks: one has a single element, others end before or after their tensor.
template <class T>
void set_uneven_decay(Problem<T>& problem) {
  problem.decay_spans[2] = {{-32, decay}, {0, 0.3}, {3, 0}, {4, decay}, {9, 0}};
  problem.decay_spans[6] = {{1024, 0}, {1025, decay}};
  problem.decay_spans[8] = {{32, 0}, {64, decay}, {1999, 0.2}, {2048, 0}, {2049, decay}, {100000, 0}};
}

TYPED_TEST(AdamWTest, SeveralStepsByHandOnManyTensors) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const std::int64_t gap : {0, 1, 32}) {
    Problem<T> one(1, uneven, gap), two(2, uneven, gap);
    set_uneven_decay(one);
    set_uneven_decay(two);
    const Grid<A> start = one.master.now(), untouched = one.exp_avg.now();
    std::vector<std::vector<double>> gradients(static_cast<std::size_t>(one.length));
    std::vector<double> before;
    for (int n = 1; n <= 4; ++n) {
      const Grid<A> gradient = one.gradient(n);
      before = one.master.now().flat();
      one.step(n, gradient);
      two.step(n, gradient);
      for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i].push_back(to_double(gradient.values[i]));
    }
    EXPECT_TRUE(one.same_bits(two));
    EXPECT_EQ(one.sums, two.sums);
    const Grid<A> master = one.master.now();
    const Grid<T> weight = one.weight.now();
    std::vector<double> expected = start.flat();
    std::vector<bool> inside(expected.size());
    for (std::size_t t = 0; t < uneven.size(); ++t) {
      std::vector<double> weights(static_cast<std::size_t>(flat_blocks_of(uneven[t]))), updates = weights;
      for (std::int64_t i = 0; i < uneven[t]; ++i) {
        const auto at = static_cast<std::size_t>(one.begin[t] + i);
        inside[at] = true;
        expected[at] = by_hand(expected[at], gradients[at], one.decay_of(t, i));
        const double now = to_double(master.values[at]);
        ASSERT_EQ(to_double(weight.values[at]), to_double(round_to<T>(master.values[at])));
        weights[static_cast<std::size_t>(i / flat_block)] += now * now;
        updates[static_cast<std::size_t>(i / flat_block)] += std::pow(now - before[at], 2);
      }
      for (std::size_t b = 0; b < weights.size(); ++b) {
        const auto at = static_cast<std::size_t>(one.first_block[t]) + b;
        const double update = one.sums[at + static_cast<std::size_t>(one.blocks)];
        EXPECT_TRUE(std::abs(one.sums[at] - weights[b]) <= 1e-12 * weights[b]) << one.sums[at] << ' ' << weights[b];
        EXPECT_TRUE(std::abs(update - updates[b]) <= 1e-3 * updates[b]) << update << " for " << updates[b];
      }
    }
    expect_close(master, expected, tolerance_of<A>);
    for (std::size_t at = 0; at < inside.size(); ++at) {
      if (inside[at]) continue;
      EXPECT_EQ(master.values[at], start.values[at]) << "between tensors";
      EXPECT_TRUE(is_nan(to_double(weight.values[at]))) << "between tensors";
    }
  }
}

TYPED_TEST(AdamWTest, NeitherCutsAtBlocksNorTheBeginInMemoryChangeABit) {
  using T = TypeParam;
  Problem<T> whole(1, {150000}), cut(2, {2048, 0, 147952}), moved(1, {150000}, 1);
  whole.decay_spans[0] = {{100, 0}, {2500, decay}, {150000, 0}};
  moved.decay_spans = whole.decay_spans;
  cut.decay_spans = {{{100, 0}, {2500, decay}, {150000, 0}},
                     {{-1948, 0}, {452, decay}, {147952, 0}},
                     {{-1948, 0}, {452, decay}, {147952, 0}}};
  const auto gradient = whole.gradient(1);
  whole.step(1, gradient);
  cut.step(1, gradient);
  EXPECT_TRUE(whole.same_bits(cut));
  EXPECT_EQ(whole.sums, cut.sums);
  // Copies the numbers to one element later in memory, to test another alignment.
  auto later = moved.gradient(1), weights = moved.master.now();
  const auto start = Problem<T>(1, {150000}).master.now();
  std::copy_n(start.values.begin(), 150000, weights.values.begin() + 1);
  std::copy_n(gradient.values.begin(), 150000, later.values.begin() + 1);
  moved.master = {moved.stream, weights};
  moved.step(1, later);
  EXPECT_EQ(whole.sums, moved.sums);
  const auto moved_weights = moved.weight.now(), whole_weights = whole.weight.now();
  EXPECT_EQ(std::memcmp(moved_weights.values.data() + 1, whole_weights.values.data(), 150000 * sizeof(T)), 0);
}

/// Returns the factor of element i of a span by the definition of HeadScaling.
double factor_of(const HeadScaling& heads, const std::vector<double>& factors, std::int64_t i) {
  if (heads.period == 0) return 1;
  const auto head = static_cast<std::size_t>((i - heads.begin) / heads.period + heads.first_head);
  if ((i - heads.begin) % heads.period < heads.split) return factors[head];
  return heads.rest == HeadScaling::Rest::squared ? factors[factors.size() / 2 + head] : 1;
}

/// Spans with heads that begin before the tensor, end within blocks, and cross groups of elements that a thread updates
/// together.
TYPED_TEST(AdamWTest, ScalesTheWeightsOfHeads) {
  using T = TypeParam;
  using A = Accumulator<T>;
  using Rest = HeadScaling::Rest;
  for (const std::int64_t gap : {0, 1}) {
    Problem<T> scaled(2, {5000, 37, 100}, gap), plain(2, {5000, 37, 100}, gap);
    scaled.head_factors = {0.5, 0.75, 1, 0.25, 0.125, 0.3125, 1, 0.875};
    const HeadScaling long_heads{.begin = -700, .period = 1201, .split = 1201, .first_head = 0};
    const HeadScaling short_heads{.begin = 3000, .period = 401, .split = 150, .first_head = 1, .rest = Rest::squared};
    const HeadScaling keys{.begin = 5, .period = 8, .split = 3, .first_head = 0};
    scaled.decay_spans[0] = {{.end = 2500, .weight_decay = decay, .heads = long_heads},
                             {.end = 3000, .weight_decay = 0},
                             {.end = 4203, .weight_decay = 0.3, .heads = short_heads},
                             {.end = 5000, .weight_decay = 0.3}};
    scaled.decay_spans[1] = {{.end = 5, .weight_decay = 0}, {.end = 37, .weight_decay = 0, .heads = keys}};
    for (std::size_t t : {0, 1}) {
      plain.decay_spans[t] = scaled.decay_spans[t];
      for (UpdateSpan& span : plain.decay_spans[t]) span.heads = {};
    }
    scaled.check(true);
    const auto gradient = scaled.gradient(1);
    scaled.step(1, gradient);
    plain.step(1, gradient);
    scaled.check(false);
    EXPECT_EQ(scaled.damaged[0], 0u) << "the digests are not those of the scaled weights";
    EXPECT_TRUE(scaled.exp_avg.now().same_bits(plain.exp_avg.now()));
    const Grid<A> master = scaled.master.now(), before = plain.master.now();
    const Grid<T> weight = scaled.weight.now();
    for (std::size_t t = 0; t < scaled.sizes.size(); ++t) {
      std::vector<double> squares(static_cast<std::size_t>(flat_blocks_of(scaled.sizes[t])));
      for (std::int64_t i = 0; i < scaled.sizes[t]; ++i) {
        const auto at = static_cast<std::size_t>(scaled.begin[t] + i);
        const HeadScaling heads =
            std::ranges::find_if(scaled.decay_spans[t], [&](const UpdateSpan& span) { return span.end > i; })->heads;
        const A factor = static_cast<A>(factor_of(heads, scaled.head_factors, i));
        ASSERT_EQ(master.values[at], before.values[at] * factor) << "tensor " << t << ", element " << i;
        ASSERT_EQ(to_double(weight.values[at]), to_double(round_to<T>(master.values[at])));
        squares[static_cast<std::size_t>(i / flat_block)] += std::pow(to_double(master.values[at]), 2);
      }
      for (std::size_t b = 0; b < squares.size(); ++b) {
        const auto at = static_cast<std::size_t>(scaled.first_block[t]) + b;
        EXPECT_TRUE(std::abs(scaled.sums[at] - squares[b]) <= 1e-12 * squares[b]);
        const double update = scaled.sums[at + static_cast<std::size_t>(scaled.blocks)];
        const double of_plain = plain.sums[at + static_cast<std::size_t>(plain.blocks)];
        EXPECT_TRUE(std::abs(update - of_plain) <= 1e-12 * of_plain) << "the update is that of the rule";
      }
    }
    const Grid<A> kept = scaled.master.now();
    scaled.step(2, gradient, true);
    EXPECT_TRUE(scaled.master.now().same_bits(kept)) << "a skipped step scales nothing";
  }
}

TYPED_TEST(AdamWTest, AStepThatIsLeftOutChangesNothing) {
  Problem<TypeParam> problem(2, uneven, 3);
  problem.step(1, problem.gradient(1));
  const std::vector<double> before = problem.sums;
  const auto master = problem.master.now(), m = problem.exp_avg.now(), v = problem.exp_avg_sq.now();
  const auto weight = problem.weight.now();
  auto gradient = problem.gradient(2);
  for (auto& value : gradient.values) value = poison<Accumulator<TypeParam>>();
  problem.step(2, gradient, true);
  EXPECT_TRUE(problem.master.now().same_bits(master) && problem.weight.now().same_bits(weight));
  EXPECT_TRUE(problem.exp_avg.now().same_bits(m) && problem.exp_avg_sq.now().same_bits(v));
  for (std::size_t b = 0; b < static_cast<std::size_t>(problem.blocks); ++b) {
    EXPECT_TRUE(std::abs(problem.sums[b] - before[b]) <= 1e-14 * before[b]);
    EXPECT_EQ(problem.sums[b + static_cast<std::size_t>(problem.blocks)], 0);
  }
}

TEST(AdamW, SumsOfTensorsWithoutAPlaceAreLeftOut) {
  Problem<float> problem(1, {2000, 3000});
  problem.offsets[0] = problem.offsets[3] = -1;  // no sums for weights of the first and updates of the second tensor
  problem.step(1, problem.gradient(1));
  for (std::size_t b = 0; b < 5; ++b) {
    EXPECT_EQ(is_nan(problem.sums[b]), b < 2) << b;
    EXPECT_EQ(is_nan(problem.sums[5 + b]), b >= 2) << b;
  }
}

TEST(AdamW, MasterMayBeTheWeight) {
  Problem<float> apart(1, {100, 1500}), together(1, {100, 1500});
  together.weight = together.master;
  apart.step(1, apart.gradient(1));
  together.step(1, apart.gradient(1));
  EXPECT_TRUE(together.master.now().same_bits(apart.weight.now()));
}

TEST(AdamW, NanShowsAndZeroGradientsOnlyDecay) {
  Problem<bfloat16> problem(1, {3});
  auto gradient = Grid<float>::zeros(1, 3);
  gradient(0, 1) = poison<float>();
  const std::vector<double> before = problem.master.now().flat();
  problem.step(1, gradient);
  EXPECT_TRUE(is_nan(problem.master.now().at(0, 1)) && is_nan(problem.weight.now().at(0, 1)) &&
              is_nan(problem.exp_avg.now().at(0, 1)) && is_nan(problem.sums[0]) && is_nan(problem.sums[1]));
  EXPECT_NEAR(problem.master.now().at(0, 0), before[0] * (1 - lr * decay), 1e-7);
}

TEST(AdamW, NothingToUpdate) {
  Problem<float> none(1, {}), empty(1, {0, 0});
  none.step(1, none.gradient(1));
  empty.step(1, empty.gradient(1));
  EXPECT_TRUE(none.sums.empty() && empty.sums.empty());
}

TEST(AdamW, RefusesOtherLengths) {
  Problem<float> problem(1, {3, 4});
  problem.offsets.pop_back();
  EXPECT_THROW(problem.step(1, problem.gradient(1)), Error);
}

constexpr double infinity = std::numeric_limits<double>::infinity();

StepVerdict judged(double norm, double loss, double clip, double loss_weight = 0.25,
                   const std::vector<double>& limits = {infinity, infinity}) {
  const std::vector<double> norms{norm}, losses{loss}, weights{loss_weight};
  std::vector<StepVerdict> verdict{{.gradient_scale = 4, .skip = 5}};
  launch_on(
      1,
      JudgeStep{
          .norm = norms, .loss = losses, .loss_weight = weights, .limits = limits, .clip = clip, .verdict = verdict});
  return verdict[0];
}

TEST(JudgeStep, ClipsAndLeavesOutWhatIsNotFinite) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(judged(2, 5, 0.5).gradient_scale, 0.25);
  EXPECT_EQ(judged(2, 5, 2).gradient_scale, 1);
  EXPECT_EQ(judged(2, 5, 0).gradient_scale, 1);
  EXPECT_EQ(judged(0, 5, 1).gradient_scale, 1);
  for (const double norm : {0.0, 2.0, 1e300}) EXPECT_EQ(judged(norm, -3, 1).skip, 0);
  for (const double bad : {inf, -inf, nan}) {
    EXPECT_EQ(judged(bad, 5, 1).skip, 1);
    EXPECT_EQ(judged(2, bad, 1).skip, 1);
  }
  EXPECT_EQ(judged(2, 0, 1, 0).skip, 1);  // a batch without targets
}

TEST(JudgeStep, SkipsWhatIsAboveALimit) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(judged(2, 5, 1, 0.25, {5, 2}).skip, 0) << "a limit itself is allowed";
  EXPECT_EQ(judged(2, std::nextafter(5, 6), 1, 0.25, {5, 2}).skip, StepVerdict::outlier);
  EXPECT_EQ(judged(std::nextafter(2, 3), 5, 1, 0.25, {5, 2}).skip, StepVerdict::outlier);
  EXPECT_EQ(judged(2, 1e300, 1, 0.25, {infinity, 2}).skip, 0);
  EXPECT_EQ(judged(1e300, 5, 1, 0.25, {5, infinity}).skip, 0);
  for (const double bad : {infinity, nan}) {
    EXPECT_EQ(judged(bad, 9, 1, 0.25, {5, 2}).skip, StepVerdict::unsound);
    EXPECT_EQ(judged(9, bad, 1, 0.25, {5, 2}).skip, StepVerdict::unsound);
  }
  EXPECT_EQ(judged(2, 9, 1, 0, {5, 2}).skip, StepVerdict::unsound) << "a batch without targets";
}

TYPED_TEST(AdamWTest, FindsWhatChangesBetweenUpdates) {
  using T = TypeParam;
  Problem<T> one(2, uneven, 1), unwatched(1, uneven, 1);
  one.check(true);
  for (int n = 1; n <= 3; ++n) {
    one.step(n, one.gradient(n), n == 2);
    unwatched.step(n, one.gradient(n), n == 2);
    EXPECT_EQ(one.damaged[0], 0u) << n;
    one.check(false);
    EXPECT_EQ(one.damaged[0], 0u) << n;
  }
  EXPECT_TRUE(one.same_bits(unwatched));
  const std::size_t t = 8;  // has 5000 elements
  for (const int array : {0, 1, 2, 3}) {
    for (const std::int64_t element : {0, 1023, 1024, 4999}) {
      const int bit = static_cast<int>((element + array) % 16);
      const auto flip = [&] {
        const std::int64_t at = one.begin[t] + element;
        array == 0   ? one.master.flip(at, bit)
        : array == 1 ? one.exp_avg.flip(at, bit)
        : array == 2 ? one.exp_avg_sq.flip(at, bit)
                     : one.weight.flip(at, bit);
      };
      flip();
      one.check(false);
      const std::int64_t block = one.first_block[t] + element / flat_block;
      EXPECT_EQ(one.damaged[0], one.blocks - block) << array << " element " << element;
      one.damaged[0] = 0;
      Problem<T> stepped = one;
      stepped.step(4, stepped.gradient(4), true);
      EXPECT_EQ(stepped.damaged[0], 0u) << "a skipped step does not check digests";
      flip();
      one.check(false);
      EXPECT_EQ(one.damaged[0], 0u);
    }
  }
  one.exp_avg.flip(one.begin[t] + 2048, 3);
  one.exp_avg.flip(one.begin[t] + 1, 3);
  one.step(4, one.gradient(4));
  EXPECT_EQ(one.damaged[0], one.blocks - one.first_block[t]) << "the first block";
}

/// Returns how many blocks of tensors a launch on the tested device processes at a time at most.
std::int64_t warps_of_an_update() {
#ifdef LYCEUM_CUDA
  if (tests_run_on_gpu()) return std::get<CudaStream>(tested_stream()).processors() * 32 * 8;
#endif
  return 96;
}

/// Small tensors with more blocks than a launch has warps, so that a warp goes on to several tensors further.
TYPED_TEST(AdamWTest, FindsManySmallTensors) {
  using T = TypeParam;
  std::vector<std::int64_t> sizes;
  for (std::int64_t t = 0; t < 2 * warps_of_an_update(); ++t) sizes.push_back(t % 50 == 17 ? 1030 : t % 4);
  Problem<T> problem(2, sizes, 1);
  ASSERT_GT(problem.blocks, warps_of_an_update());
  problem.check(true);
  const auto start = problem.master.now(), gradient = problem.gradient(1);
  problem.step(1, gradient);
  EXPECT_EQ(problem.damaged[0], 0u);
  const auto master = problem.master.now();
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    std::vector<double> squares(static_cast<std::size_t>(flat_blocks_of(sizes[t])));
    for (std::int64_t i = 0; i < sizes[t]; ++i) {
      const auto at = static_cast<std::size_t>(problem.begin[t] + i);
      const double now = to_double(master.values[at]),
                   expected = by_hand(to_double(start.values[at]), {to_double(gradient.values[at])}, decay);
      ASSERT_TRUE(std::abs(now - expected) <= tolerance_of<Accumulator<T>>) << "tensor " << t << ", element " << i;
      squares[static_cast<std::size_t>(i / flat_block)] += now * now;
    }
    for (std::size_t b = 0; b < squares.size(); ++b) {
      const double sum = problem.sums[static_cast<std::size_t>(problem.first_block[t]) + b];
      ASSERT_TRUE(std::abs(sum - squares[b]) <= 1e-12 * squares[b]) << "tensor " << t << ", block " << b;
    }
  }
  const std::vector<std::uint32_t> digests = problem.digests;
  problem.check(true);
  EXPECT_EQ(digests, problem.digests);
}

}  // namespace
}  // namespace lyceum
