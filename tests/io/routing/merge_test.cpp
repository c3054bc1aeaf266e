#include "io/routing/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "io/report/digest.h"
#include "io/report/time_map.h"
#include "io/routing/stats.h"

namespace lyceum {
namespace {

/// Returns a random history. Some records have no tokens, no entropy or no balance of single steps.
RoutingHistory random_history(std::size_t records) {
  constexpr float unknown = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(9);
  RoutingHistory history;
  for (std::size_t r = 0; r < records; ++r) history.steps.push_back(7 * static_cast<std::int64_t>(r) + 3);
  for (const std::int64_t l : {0, 2}) {
    RoutingHistory::Layer layer{.id = {l},
                                .top_k = 2 + l,
                                .experts = 5 + l,
                                .expert_sizes = std::vector<std::int64_t>(static_cast<std::size_t>(5 + l), 8 + l),
                                .expert_rank = std::vector<std::int64_t>(static_cast<std::size_t>(5 + l), 0),
                                .counts = {},
                                .mean_probability = {},
                                .drops = l == 2,
                                .always_on = l / 2};
    for (std::size_t r = 0; r < records; ++r) {
      for (std::int64_t i = 0; i < layer.top_k * layer.experts; ++i) {
        layer.counts.push_back(r % 11 == 4 || (r % 40 > 20 && i % layer.experts == 3) ? 0 : random() % 1000);
        if (layer.drops) layer.dropped.push_back(layer.counts.back() / 3);
      }
      for (std::int64_t e = 0; e < layer.experts; ++e) {
        layer.mean_probability.push_back(static_cast<float>(random() % 100 + 1) / 400);
      }
      layer.mean_entropy.push_back(r % 7 == 2 ? unknown : static_cast<float>(random() % 100) / 50);
      const auto balance = static_cast<float>(random() % 100) / 10;
      layer.steps.push_back(r % 5 == 1 ? StepBalance{}
                                       : StepBalance{.max_vio_mean = balance,
                                                     .max_vio_max = 2 * balance,
                                                     .idle_mean = balance / 3,
                                                     .idle_max = std::ceil(balance)});
      if (l == 0) continue;
      ReplicaCounts& replicas = layer.replicas.emplace_back();
      for (std::int64_t e = 0; e < layer.experts; ++e) {
        replicas.replicas.push_back(random() % 3);
        replicas.tokens.push_back(replicas.replicas.back() * 7);
      }
      replicas.kept = random() % 4;
      replicas.sent = random() % 5;
      replicas.bytes = replicas.sent * 1000;
    }
    history.layers.push_back(std::move(layer));
  }
  return history;
}

void expect_same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) {
    EXPECT_EQ(std::isnan(a), std::isnan(b));
  } else {
    EXPECT_NEAR(a, b, 1e-5 * std::max(1.0, std::abs(b)));
  }
}

/// Expects that record `record` of `merged` has the figures of a range of records of `layer`.
void expect_merged(const RoutingHistory::Layer& merged, std::size_t record, const RoutingHistory::Layer& layer,
                   RecordRange range) {
  const RecordRange one{record, record + 1};
  for (std::int64_t k = 0; k < layer.top_k; ++k) {
    EXPECT_EQ(layer_load(merged, one, k).tokens, layer_load(layer, range, k).tokens);
  }
  EXPECT_EQ(layer_load(merged, one).dropped, layer_load(layer, range).dropped);
  expect_same(layer_load(merged, one).max_violation(), layer_load(layer, range).max_violation());
  expect_same(information(merged, one).entropy, information(layer, range).entropy);
  expect_same(information(merged, one).of_token, information(layer, range).of_token);
  EXPECT_EQ(replica_counts(merged, one), replica_counts(layer, range));
  const StepBalance a = step_balance(merged, one), b = step_balance(layer, range);
  for (const auto member :
       {&StepBalance::max_vio_mean, &StepBalance::max_vio_max, &StepBalance::idle_mean, &StepBalance::idle_max}) {
    expect_same(double{a.*member}, double{b.*member});
  }
}

TEST(RecordMerge, HasTheFiguresOfItsRecords) {
  const RoutingHistory history = random_history(60);
  for (const RecordRange range : {RecordRange{0, 60}, RecordRange{4, 5}, RecordRange{1, 3}, RecordRange{20, 51}}) {
    const RoutingHistory merged = merged_records(history, range);
    EXPECT_EQ(merged.steps, std::vector{history.steps[range.end - 1]});
    for (std::size_t l = 0; l < history.layers.size(); ++l) {
      ASSERT_EQ(merged.layers[l].records(), 1u);
      expect_merged(merged.layers[l], 0, history.layers[l], range);
    }
  }
}

// 700 records share 256 columns.
TEST(RoutingDigest, HasTheFiguresOfAllRecords) {
  const RoutingHistory history = random_history(700);
  const RoutingDigest digest = digest_of(history, {500, 650});
  ASSERT_EQ(digest.columns.size(), 256u);
  for (std::size_t l = 0; l < history.layers.size(); ++l) {
    const RoutingHistory::Layer& layer = history.layers[l];
    expect_merged(digest.selected.layers[l], 0, layer, {500, 650});
    ASSERT_EQ(digest.over_time.layers[l].records(), 256u);
    for (std::size_t c = 0; c < 256; ++c) expect_merged(digest.over_time.layers[l], c, layer, digest.columns[c]);
    // Expert 3 has no tokens in records 21 to 39 of each 40, and in those without any tokens.
    std::size_t begins = 0;
    for (const StarvedSpan& span : digest.starved[l]) begins += span.expert == 3 && span.end - span.begin >= 19;
    EXPECT_EQ(begins, 700u / 40);
  }
  ASSERT_EQ(digest.balance.size(), 700u);
  for (std::size_t r = 0; r < 700; ++r) {
    double sum = 0, worst = 0, entropy = 2, steps = 0;
    std::int64_t layers = 0, with_steps = 0;
    for (const RoutingHistory::Layer& layer : history.layers) {
      const RoutedTokens load = layer_load(layer, {r, r + 1});
      if (load.total() > 0) {
        ++layers;
        sum += load.max_violation();
        worst = std::max(worst, load.max_violation());
        entropy = std::min(entropy, load.entropy());
      }
      if (const double of_steps = double{layer.steps[r].max_vio_mean}; !std::isnan(of_steps)) {
        ++with_steps;
        steps += of_steps;
      }
    }
    EXPECT_EQ(digest.balance[r].violation.layers, layers);
    EXPECT_EQ(digest.balance[r].step_violation.layers, with_steps);
    if (with_steps > 0) {
      EXPECT_NEAR(digest.balance[r].step_violation.mean(), steps / static_cast<double>(with_steps), 1e-9);
    }
    if (layers == 0) continue;
    EXPECT_NEAR(digest.balance[r].violation.mean(), sum / static_cast<double>(layers), 1e-9);
    EXPECT_NEAR(digest.balance[r].violation.worst, worst, 1e-9);
    EXPECT_NEAR(digest.balance[r].entropy.worst, entropy, 1e-9);
  }
}

}  // namespace
}  // namespace lyceum
