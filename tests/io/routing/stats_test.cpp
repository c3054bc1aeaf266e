#include "io/routing/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/routing/csv.h"
#include "io/routing/text.h"

namespace lyceum {
namespace {

/// Returns a history with two records of 6 and 60 tokens.
RoutingHistory small_history() {
  return {.steps = {5, 6},
          .layers = {{.id = {3},
                      .top_k = 2,
                      .experts = 3,
                      .expert_sizes = {8, 8, 16},
                      .expert_rank = {0, 0, 1},
                      .counts = {1, 2, 3, 6, 0, 0, 10, 20, 30, 6, 0, 6},
                      .mean_probability = {0.25f, 0.25f, 0.5f, 0.125f, 1.0f / 3, 0.5f}}}};
}

TEST(RoutingStats, RangesOfRecords) {
  RoutingHistory history;
  EXPECT_THROW(select_records(history), Error);
  history.steps = {10, 20, 30, 40, 50};
  const auto expect = [&](RecordRange range, std::size_t begin, std::size_t end) {
    EXPECT_EQ(range.begin, begin);
    EXPECT_EQ(range.end, end);
  };
  expect(select_records(history), 3, 5);
  expect(select_records(history, 20, 40), 1, 4);
  expect(select_records(history, 21), 2, 5);
  expect(select_records(history, {}, 10), 0, 1);
  EXPECT_THROW(select_records(history, 51), Error);
  EXPECT_THROW(select_records(history, 30, 20), Error);
  history.steps = {7};
  expect(select_records(history), 0, 1);
}

TEST(RoutingStats, FiguresOfALoad) {
  // MoDSE, appendix A, epoch 2, layer 0, top0: the paper prints max, min and the ratio 1.466.
  const RoutedTokens load{.id = {},
                          .choice = 0,
                          .tokens = {29283650, 27843096, 28313260, 20797332, 19968428, 21664288, 22561424, 27503554}};
  EXPECT_EQ(load.max(), 29283650);
  EXPECT_EQ(load.min(), 19968428);
  EXPECT_NEAR(load.max_over_min(), 1.466, 1e-3);
  EXPECT_EQ(load.busiest(), 0u);
  const RoutedTokens small{.id = {}, .choice = 0, .tokens = {2, 4, 4, 4, 5, 5, 7, 9}};  // mean 5, deviation 2
  EXPECT_DOUBLE_EQ(small.variation(), 0.4);
  EXPECT_DOUBLE_EQ(small.max_over_mean(), 1.8);
  EXPECT_DOUBLE_EQ(small.max_violation(), 0.8);
  EXPECT_DOUBLE_EQ(small.percentile(0), 0.4);
  EXPECT_DOUBLE_EQ(small.percentile(0.9), 1.4);
  EXPECT_DOUBLE_EQ(small.percentile(1), 1.8);
  const RoutedTokens starved{.id = {}, .choice = 0, .tokens = {0, 3}};
  EXPECT_TRUE(std::isinf(starved.max_over_min()));
  EXPECT_DOUBLE_EQ(starved.entropy(), 0);
  const RoutedTokens half{.id = {}, .choice = 0, .tokens = {0, 3, 0, 3}};
  EXPECT_DOUBLE_EQ(half.entropy(), 0.5);
  const RoutedTokens idle{.id = {}, .choice = 0, .tokens = {0, 0}};
  EXPECT_TRUE(std::isnan(idle.max_over_min()));
  EXPECT_TRUE(std::isnan(idle.variation()));
  EXPECT_TRUE(std::isnan(idle.entropy()));
  EXPECT_TRUE(std::isnan(idle.percentile(0.5)));
}

TEST(RoutingStats, WidthOfTheChosenExperts) {
  ChosenWidth width;
  EXPECT_TRUE(std::isnan(width.mean()));
  width.add({1}, std::vector<std::int64_t>{3, 0, 1, 0, 2, 2}, std::vector<std::int64_t>{10, 20, 60});  // top-2
  EXPECT_DOUBLE_EQ(width.mean(), (3 * 10 + 2 * 20 + 3 * 60) / 8.0);
  EXPECT_DOUBLE_EQ(width.even(), 30);
  EXPECT_TRUE(width.varies());
  width.add({1, Site::attention}, std::vector<std::int64_t>{9, 9},
            std::vector<std::int64_t>{1, 2});  // attention is ignored
  width.add({2}, std::vector<std::int64_t>{8, 0}, std::vector<std::int64_t>{50, 50});
  EXPECT_DOUBLE_EQ(width.mean(), (250 + 8 * 50) / 16.0);
  EXPECT_DOUBLE_EQ(width.even(), 40);
  ChosenWidth equal;
  equal.add({0}, std::vector<std::int64_t>{1, 2}, std::vector<std::int64_t>{7, 7});
  EXPECT_FALSE(equal.varies());
}

TEST(RoutingStats, SumsOverRecordsAndChoices) {
  const RoutingHistory history = small_history();
  const std::vector<RoutedTokens> rows = loads_by_choice(history, {0, 2});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].tokens, (std::vector<std::int64_t>{11, 22, 33}));
  EXPECT_EQ(rows[1].tokens, (std::vector<std::int64_t>{12, 0, 6}));
  EXPECT_EQ(loads_by_layer(history, {1, 2})[0].tokens, (std::vector<std::int64_t>{16, 20, 36}));
  EXPECT_DOUBLE_EQ(layer_load(history.layers[0], {0, 1}).max_violation(), 7.0 / 4 - 1);
}

TEST(RoutingStats, InformationIsEntropyOfTheMeanLessMeanEntropy) {
  RoutingHistory::Layer layer = small_history().layers[0];
  EXPECT_TRUE(std::isnan(information(layer, {0, 2}).mutual()));
  layer.mean_probability = {0.25f, 0.25f, 0.5f, 0, 1, 0};
  layer.mean_entropy = {0.5f, 0.25f};
  const Information first = information(layer, {0, 1});
  EXPECT_NEAR(first.entropy, 1.5 * std::log(2), 1e-12);
  EXPECT_NEAR(first.of_token, 0.5, 1e-12);
  EXPECT_NEAR(first.mutual(), 1.5 * std::log(2) - 0.5, 1e-12);
  EXPECT_EQ(information(layer, {1, 2}).entropy, 0);
  const double a = 0.25 / 11, b = (0.25 + 10) / 11, c = 0.5 / 11;
  const Information both = information(layer, {0, 2});
  EXPECT_NEAR(both.entropy, -(a * std::log(a) + b * std::log(b) + c * std::log(c)), 1e-12);
  EXPECT_NEAR(both.of_token, (6 * 0.5 + 60 * 0.25) / 66, 1e-12);
}

TEST(RoutingText, TablesHoldTheFigures) {
  const std::string brief = routing_table(small_history(), {0, 2}, false);
  EXPECT_NE(brief.find("summed over 2 records, steps up to 6;"), std::string::npos) << brief;
  EXPECT_NE(routing_table(small_history(), {1, 2}, false).find("summed over 1 record, steps 6 to 6;"),
            std::string::npos);
  EXPECT_NE(brief.find("layer3 top0     33   11    3.000"), std::string::npos) << brief;
  EXPECT_NE(brief.find("inf"), std::string::npos) << brief;
  const std::string full = routing_table(small_history(), {0, 2}, true);
  EXPECT_NE(full.find("expert width   8   8  16"), std::string::npos) << full;
  EXPECT_NE(full.find("layer3 top1   12   0   6   12    0      inf"), std::string::npos) << full;
  EXPECT_EQ(full.find("H(m|x)"), std::string::npos) << full;
  RoutingHistory informed = small_history();
  informed.layers[0].mean_entropy = {0.5f, 0.25f};
  const std::string reported = routing_table(informed, {0, 1}, false);
  EXPECT_NE(reported.find("layer3  1.040   0.500  0.540"), std::string::npos) << reported;
}

// In this log, the capacity of FFN experts is limited and that of attention experts is not.
TEST(RoutingText, DroppedChoicesHaveAColumnWhereExpertsHaveLimitedRoom) {
  RoutingHistory history = small_history();
  EXPECT_EQ(routing_table(history, {0, 2}, false).find("dropped"), std::string::npos);
  history.layers.insert(history.layers.begin(), history.layers[0]);
  history.layers[0].id.site = Site::attention;
  history.layers[1].drops = true;
  history.layers[1].dropped = {0, 1, 1, 2, 0, 0, 0, 0, 20, 0, 0, 1};
  EXPECT_TRUE(std::isnan(RoutedTokens{.id = {}, .choice = {}, .tokens = {0}}.dropped_share()));
  EXPECT_DOUBLE_EQ(layer_load(history.layers[1], {0, 2}, 0).dropped_share(), 22.0 / 66);
  EXPECT_EQ(layer_load(history.layers[1], {0, 1}).dropped, 4);
  const std::string table = routing_table(history, {0, 2}, false);
  EXPECT_NE(table.find("busiest  dropped\n"), std::string::npos) << table;
  EXPECT_NE(table.find("        0\nlayer3 top0 "), std::string::npos) << table;
  EXPECT_NE(table.find("       22\nlayer3 top1 "), std::string::npos) << table;
  EXPECT_NE(table.find("0.816        0        3\n"), std::string::npos) << table;
  std::ostringstream csv;
  write_routing_csv(history, csv);
  const std::string lines = csv.str();
  EXPECT_TRUE(
      lines.starts_with("step,layer,choice,expert,expert_size,expert_rank,tokens,mean_probability,site,dropped\n"));
  EXPECT_NE(lines.find("\n5,3,0,1,8,0,2,0.25,attention,0\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find("\n5,3,0,1,8,0,2,0.25,ffn,1\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find("\n6,3,0,2,16,1,30,0.5,ffn,20\n"), std::string::npos) << lines;
}

TEST(RoutingText, CsvHoldsEveryCount) {
  std::ostringstream out;
  const RoutingHistory history = small_history();
  write_routing_csv(history, out);
  std::istringstream in(out.str());
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "step,layer,choice,expert,expert_size,expert_rank,tokens,mean_probability,site");
  for (std::size_t i = 0; i < history.layers[0].counts.size(); ++i) {
    ASSERT_TRUE(std::getline(in, line));
    long step = 0, layer = 0, choice = 0, expert = 0, size = 0, rank = 0, tokens = 0;
    float probability = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%ld,%ld,%ld,%ld,%ld,%ld,%ld,%f", &step, &layer, &choice, &expert, &size, &rank,
                          &tokens, &probability),
              8)
        << line;
    EXPECT_EQ(step, history.steps[i / 6]);
    EXPECT_EQ(layer, 3);
    EXPECT_EQ(choice, static_cast<long>(i / 3 % 2));
    EXPECT_EQ(expert, static_cast<long>(i % 3));
    EXPECT_EQ(size, expert == 2 ? 16 : 8);
    EXPECT_EQ(rank, expert == 2 ? 1 : 0);
    EXPECT_EQ(tokens, history.layers[0].counts[i]);
    EXPECT_EQ(probability, history.layers[0].mean_probability[i / 6 * 3 + i % 3]) << "enough digits for every float";
  }
  EXPECT_FALSE(std::getline(in, line));
}

}  // namespace
}  // namespace lyceum
