#include "io/report/html.h"

#include <boost/property_tree/ptree.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "io/report/alarms.h"
#include "io/report/chart.h"
#include "io/report/digest.h"
#include "io/report/time_map.h"
#include "io/routing/stats.h"
#include "support/nan.h"
#include "support/xml.h"

namespace lyceum {
namespace {

using Tree = boost::property_tree::ptree;

void visit(const Tree& tree, const std::function<void(const std::string&, const Tree&)>& use) {
  for (const auto& [name, child] : tree) {
    if (name == "<xmlattr>") continue;
    use(name, child);
    visit(child, use);
  }
}

std::string attribute(const Tree& element, const std::string& name) {
  return element.get<std::string>("<xmlattr>." + name, "");
}

std::vector<std::string> texts_of(const Tree& tree, const std::string& element) {
  std::vector<std::string> texts;
  visit(tree, [&](const std::string& name, const Tree& child) {
    if (name == element) texts.push_back(child.data());
  });
  return texts;
}

/// Returns the values that the page shows under the pointer, of all charts, keyed by the name of the line.
std::map<std::string, nlohmann::json> plotted(const Tree& tree) {
  std::map<std::string, nlohmann::json> lines;
  visit(tree, [&](const std::string&, const Tree& child) {
    const std::string data = attribute(child, "data-lines");
    if (data.empty()) return;
    for (const nlohmann::json& line : nlohmann::json::parse(data)) {
      lines[line["name"].get<std::string>()] = line["points"];
    }
  });
  return lines;
}

RoutingHistory history_of(std::int64_t layers, std::int64_t top_k, std::int64_t experts, std::int64_t records) {
  RoutingHistory history;
  for (std::int64_t r = 0; r < records; ++r) history.steps.push_back(10 * (r + 1));
  for (std::int64_t l = 0; l < layers; ++l) {
    RoutingHistory::Layer layer{.id = {l},
                                .top_k = top_k,
                                .experts = experts,
                                .expert_sizes = std::vector<std::int64_t>(static_cast<std::size_t>(experts), 64),
                                .expert_rank = std::vector<std::int64_t>(static_cast<std::size_t>(experts), 0),
                                .counts = {},
                                .mean_probability = {}};
    for (std::int64_t i = 0; i < records * top_k * experts; ++i) layer.counts.push_back(1 + (i * 7 + l) % 13);
    layer.mean_probability.resize(static_cast<std::size_t>(records * experts), 1.0f / static_cast<float>(experts));
    history.layers.push_back(std::move(layer));
  }
  return history;
}

TEST(ReportHtml, ShowsTheNormsOfLayers) {
  ReportInput input{.title = "norms"};
  EXPECT_EQ(html_report(input).find("Norms by layer"), std::string::npos);
  for (int block = 0; block < 11; ++block) {
    const std::string name = std::to_string(block);
    input.layers["layer_weight_norm/" + name] = {{100, 10.0 + block}, {200, 30.5 + block}};
    input.layers["layer_grad_norm/" + name] = {{100, block == 3 ? 0 : 0.5}, {200, nan}};  // 0: a frozen block
    input.layers["layer_activation_norm/" + name] = {{100, 7}, {200, 1.25 + block}};
    input.layers["layer_attention_logit/" + name] = {{100, -0.5}, {200, 20.75 + block}};
  }
  for (const std::string name : {"embedding", "head"}) {
    input.layers["layer_weight_norm/" + name] = {{100, 3}, {200, 4.125}};
    input.layers["layer_grad_norm/" + name] = {{100, 3}, {200, 0.0625}};
  }
  input.layers["largest_logit"] = {{100, 12}, {200, 17.75}};
  EXPECT_NE(html_report(input).find("Largest attention logits"), std::string::npos);
  const Tree page = parsed_xml(html_report(input));
  auto lines = plotted(page);
  EXPECT_EQ(lines.at("largest logit"), nlohmann::json::parse("[[100,12],[200,17.75]]"));
  EXPECT_TRUE(lines.contains("block 0") && lines.contains("block 10") && !lines.contains("block 9"));
  const std::vector<std::string> rows = texts_of(page, "th");
  EXPECT_EQ(std::ranges::count(rows, "10"), 1);
  EXPECT_EQ(std::ranges::count(rows, "embedding"), 1);
  const std::vector<std::string> cells = texts_of(page, "td");
  for (const double value : {4.125, 0.0625, 40.5, 11.25, 30.75, nan}) {
    EXPECT_GE(std::ranges::count(cells, short_number(value)), 1) << value;
  }
}

TEST(ReportHtml, HoldsTheNumbersItWasGiven) {
  RoutingHistory history = history_of(2, 2, 3, 4);
  history.layers[1].counts.assign(24, 0);
  history.layers[1].counts[18] = 12;  // newest record, first choice: expert 0 gets all tokens
  ReportInput input{.title = "a <b> & \"c\"",
                    .train = {{1, 8.25}, {2, nan}, {3, 7.5}},
                    .valid = {{3, 7.625}},
                    .unigram_entropy = 6.5,
                    .routing = history,
                    .facts = {{"mesh", "dp 2 & ep <2>"}},
                    .range = {}};
  const Tree page = parsed_xml(html_report(input));
  EXPECT_EQ(texts_of(page, "title").front(), input.title);
  EXPECT_EQ(texts_of(page, "dd"), (std::vector<std::string>{"dp 2 & ep <2>"}));
  const auto lines = plotted(page);
  EXPECT_EQ(lines.at("training"), nlohmann::json::parse(R"([[1,8.25],[2,"NaN"],[3,7.5]])"));
  EXPECT_EQ(lines.at("validation"), nlohmann::json::parse("[[3,7.625]]"));
  const std::vector<RoutedTokens> loads = loads_by_choice(history, {3, 4});
  EXPECT_NEAR(lines.at("top0")[0][1].get<double>(), loads[0].max_over_min(), 1e-6);
  EXPECT_EQ(lines.at("top0")[1][1], "∞");
  EXPECT_EQ(lines.at("top1")[1][1], "NaN") << "no tokens at all";
  // Heat map: its cells have titles, and a cell without tokens has a separate colour.
  const RoutedTokens layer = loads_by_layer(history, {3, 4})[0];
  const std::vector<std::string> titles = texts_of(page, "title");
  const std::string cell = "layer 0, expert 2: " + std::to_string(layer.tokens[2] / layer.mean()).substr(0, 5);
  EXPECT_TRUE(std::any_of(titles.begin(), titles.end(), [&](const auto& t) { return t.starts_with(cell); })) << cell;
  int empty_cells = 0;
  visit(page, [&](const std::string& name, const Tree& e) {
    empty_cells += name == "rect" && attribute(e, "class") == "none";
  });
  EXPECT_EQ(empty_cells, 2);
  // The table has one row per layer and choice.
  const std::vector<std::string> cells = texts_of(page, "td");
  ASSERT_EQ(cells.size(), 4u * 6);
  EXPECT_EQ(cells[0], std::to_string(loads[0].max()));
  EXPECT_EQ(cells[1], std::to_string(loads[0].min()));
  EXPECT_EQ(cells[14], "∞");
}

TEST(ReportHtml, TellsDroppedChoicesWhereExpertsHaveLimitedRoom) {
  RoutingHistory history = history_of(2, 1, 2, 2);
  EXPECT_EQ(html_report({.title = "limited", .routing = history}).find("ropped"), std::string::npos);
  RoutingHistory::Layer& layer = history.layers[1];
  layer.counts = {6, 2, 5, 5};
  layer.drops = true;
  layer.dropped = {2, 0, 1, 0};
  const ReportInput input{.title = "limited", .routing = history, .range = RecordRange{0, 2}};
  const Tree page = parsed_xml(html_report(input));
  const auto lines = plotted(page);
  EXPECT_EQ(lines.at("mean of the layers").back(), nlohmann::json::parse("[20,0.05]"));
  EXPECT_EQ(lines.at("worst layer").front(), nlohmann::json::parse("[10,0.25]"));
  const std::vector<std::string> heads = texts_of(page, "th"), cells = texts_of(page, "td");
  EXPECT_EQ(std::ranges::count(heads, "dropped"), 1);
  ASSERT_EQ(cells.size(), 2u * 7);
  EXPECT_EQ(cells[6], "0");
  EXPECT_EQ(cells[13], "3");
  const std::int64_t others = layer_load(history.layers[0], {0, 2}).total();
  const std::string share = fmt::format("{:.2f} %", 300 / static_cast<double>(18 + others));
  EXPECT_EQ(std::ranges::count(texts_of(page, "strong"), share), 1) << share;
}

TEST(ReportHtml, HasTheLossOfModules) {
  ReportInput input{.title = "modules", .train = {{1, 8.25}, {2, 7.5}}};
  EXPECT_EQ(html_report(input).find("multi-token"), std::string::npos);
  input.mtp = {{1, 2.5}, {2, 2.25}};
  EXPECT_EQ(plotted(parsed_xml(html_report(input))).at("multi-token prediction"),
            nlohmann::json::parse("[[1,2.5],[2,2.25]]"));
}

TEST(ReportHtml, LeavesOutWhatIsNotThere) {
  for (const bool routing : {false, true}) {
    for (const std::vector<MetricPoint>& train :
         {std::vector<MetricPoint>{}, {{1, 5.0}}, {{1, nan}}, {{1, nan}, {2, nan}}, {{1, 3.0}, {2, 3.0}}}) {
      ReportInput input{
          .title = "", .train = train, .valid = {}, .unigram_entropy = {}, .routing = {}, .facts = {}, .range = {}};
      if (routing) input.routing = history_of(1, 1, 1, 1);
      const std::string text = html_report(input);
      const Tree page = parsed_xml(text);
      std::size_t figures = 0;
      visit(page, [&](const std::string& name, const Tree&) { figures += name == "figure"; });
      EXPECT_EQ(figures, (train.empty() ? 0u : 1u) + (routing ? 4u + 3u : 0u));
      visit(page, [&](const std::string& name, const Tree& e) {
        const bool drawn = name == "path" || name == "rect" || name == "b";
        const std::string place = attribute(e, "d") + attribute(e, "x") + attribute(e, "style");
        EXPECT_FALSE(drawn && (place.find("nan") != std::string::npos || place.find("inf") != std::string::npos))
            << place;
      });
      visit(page, [&](const std::string&, const Tree& e) {
        const std::string source = attribute(e, "src");
        EXPECT_TRUE(source.empty() || source.starts_with("data:")) << "the page needs nothing else: " << source;
      });
      EXPECT_EQ(text.find("<link"), std::string::npos);
    }
  }
}

TEST(ReportHtml, LargeAndLongRunsStaySmallEnoughToOpen) {
  ReportInput input{.title = "large",
                    .train = {},
                    .valid = {},
                    .unigram_entropy = {},
                    .routing = history_of(60, 8, 160, 2),
                    .facts = {},
                    .range = {}};
  for (int step = 1; step <= 50000; ++step)
    input.train.push_back({step, step == 31234 ? 99.0 : 5.0 + 0.1 * (step % 7)});
  const std::string text = html_report(input);
  EXPECT_LT(text.size(), 4u << 20);
  const auto lines = plotted(parsed_xml(text));
  EXPECT_LE(lines.at("training").size(), 1200u);
  const auto& points = lines.at("training");
  EXPECT_TRUE(std::any_of(points.begin(), points.end(), [](const auto& p) { return p[1] == 99.0; })) << "peaks survive";
}

/// Returns a history of 24 layers with 64 experts and top-6, one record per 40 steps, until step 8,000. In layer 12,
/// experts 0 to 34 get no tokens after step 4,000.
RoutingHistory collapsing_history() {
  RoutingHistory history = history_of(24, 6, 64, 200);
  for (std::size_t r = 0; r < history.steps.size(); ++r) history.steps[r] = 40 * (static_cast<std::int64_t>(r) + 1);
  for (RoutingHistory::Layer& layer : history.layers) {
    for (std::size_t i = 0; i < layer.counts.size(); ++i) {
      const bool lost = layer.id.layer == 12 && i / (64 * 6) >= 100 && i % 64 < 35;
      layer.counts[i] = lost ? 0 : 100 * layer.counts[i];
    }
  }
  return history;
}

TEST(ReportHtml, TellsACollapseFirst) {
  const std::string text =
      html_report({.title = "collapse", .routing = collapsing_history(), .config = "[moe]\nexperts = 64"});
  EXPECT_LT(text.size(), 4u << 20);
  const auto alarm = text.find("35 of 64 experts are starved: no token since step 4,000");
  ASSERT_NE(alarm, std::string::npos);
  EXPECT_LT(alarm, text.find("<figure"));
  EXPECT_NE(text.find("<h2>1 current alarm</h2>"), std::string::npos);
  EXPECT_NE(text.find("experts 0–34 starved: no token since step 4,000"), std::string::npos);
  const Tree page = parsed_xml(text);
  std::vector<std::string> links, alarmed;
  std::size_t maps = 0, layers_with_maps = 0;
  visit(page, [&](const std::string& name, const Tree& e) {
    const std::string style = attribute(e, "class");
    if (name == "a") links.push_back(attribute(e, "href"));
    if (style == "card alarmed") alarmed.push_back(attribute(e.get_child("h3"), "id"));
    maps += style == "plot map";
    layers_with_maps += style == "card" || style == "card alarmed";
  });
  EXPECT_EQ(links, std::vector<std::string>{"#layer-12"});
  EXPECT_EQ(alarmed, std::vector<std::string>{"layer-12"});
  EXPECT_EQ(layers_with_maps, 24u);
  EXPECT_EQ(maps, 1 + 24 * 7u) << "starved experts of all layers; each layer's all choices and every one";
  EXPECT_EQ(texts_of(page, "pre").front(), "[moe]\nexperts = 64");
}

TEST(ReportHtml, SaysWhatItDoesNotKnow) {
  const Tree page =
      parsed_xml(html_report({.title = "", .routing = history_of(1, 1, 2, 3), .missing = {"No metrics & co."}}));
  const std::vector<std::string> sentences = texts_of(page, "p");
  EXPECT_NE(std::ranges::find(sentences, "No metrics & co."), sentences.end());
}

std::vector<Alarm> routing_alarms(const RoutingHistory& history) {
  return digest_of(history, {0, history.steps.size()}).alarms;
}

TEST(RoutingAlarms, SaySinceWhen) {
  RoutingHistory history = history_of(2, 1, 4, 10);  // steps 10 … 100
  const auto set = [&](std::size_t layer, std::size_t expert, std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) history.layers[layer].counts[4 * r + expert] = 0;
  };
  for (RoutingHistory::Layer& layer : history.layers) std::ranges::fill(layer.counts, 100);
  set(0, 1, 4, 10);
  set(0, 3, 7, 10);
  set(1, 0, 0, 10);
  set(1, 2, 2, 5);
  set(1, 3, 5, 6);  // too few tokens to count as starved
  const std::vector<Alarm> alarms = routing_alarms(history);
  ASSERT_EQ(alarms.size(), 3u);
  const auto expect = [](const Alarm& alarm, std::int64_t step, std::int64_t layer, bool over,
                         const std::string& text) {
    EXPECT_EQ(alarm.step, step);
    EXPECT_EQ(alarm.router, MixtureId{layer});
    EXPECT_EQ(alarm.over, over);
    EXPECT_EQ(alarm.text, text);
  };
  expect(alarms[0], 0, 1, false, "1 of 4 experts is starved: no token since the start");
  expect(alarms[1], 40, 0, false, "2 of 4 experts are starved: no token since step 40 (1), step 70 (1)");
  expect(alarms[2], 20, 1, true, "1 of 4 experts was starved, until step 50");
  const std::vector<StarvedSpan> spans = digest_of(history, {0, 10}).starved[1];
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[1].expert, 2u);
  EXPECT_EQ(spans[1].begin, 2u);
  EXPECT_EQ(spans[1].end, 5u);
}

TEST(RoutingAlarms, TellAnExpertThatTakesAll) {
  RoutingHistory history = history_of(1, 1, 16, 5);
  std::ranges::fill(history.layers[0].counts, 10);
  for (const std::size_t r : {1, 3, 4}) history.layers[0].counts[16 * r + 7] = 1000;
  std::vector<Alarm> alarms = routing_alarms(history);
  ASSERT_EQ(alarms.size(), 1u);
  EXPECT_EQ(alarms[0].step, 20);
  EXPECT_FALSE(alarms[0].over);
  EXPECT_EQ(alarms[0].text, "MaxVio above 4 still in the newest record; worst 12.9 at step 20");
  history.layers[0].counts[16 * 4 + 7] = 10;
  alarms = routing_alarms(history);
  ASSERT_EQ(alarms.size(), 1u);
  EXPECT_TRUE(alarms[0].over);
  EXPECT_EQ(alarms[0].text, "MaxVio above 4 until step 40; worst 12.9 at step 20");
}

// In each step two of eight experts get all tokens, and the experts take turns, so the sum of a record is even.
TEST(RoutingAlarms, TellACollapseThatTheSumOfARecordHides) {
  RoutingHistory history = history_of(1, 2, 8, 4);  // steps 10 … 40
  RoutingHistory::Layer& layer = history.layers[0];
  std::ranges::fill(layer.counts, 512);
  EXPECT_TRUE(routing_alarms(history).empty());
  layer.steps.assign(4, {.max_vio_mean = 0.25f, .max_vio_max = 0.5f, .idle_mean = 0, .idle_max = 0});
  EXPECT_TRUE(routing_alarms(history).empty());
  const StepBalance collapsed{.max_vio_mean = 2.75f, .max_vio_max = 3, .idle_mean = 5.5f, .idle_max = 6};
  layer.steps[2] = layer.steps[3] = collapsed;
  std::vector<Alarm> alarms = routing_alarms(history);
  ASSERT_EQ(alarms.size(), 1u);
  EXPECT_EQ(alarms[0].step, 30);
  EXPECT_FALSE(alarms[0].over);
  EXPECT_EQ(alarms[0].text,
            "uneven steps, still in the newest record; worst record, at step 30: MaxVio of a step 2.75 on average "
            "(limit 1.5), 5.5 of 8 experts idle in a step; the sum of its steps has MaxVio 0, since the busy experts "
            "change from step to step");
  const std::string page = html_report({.title = "", .routing = history});
  const auto lines = plotted(parsed_xml(page));
  EXPECT_EQ(lines.at("worst step of the worst layer").back(), nlohmann::json::parse("[40,0.75]")) << "idle: 6 of 8";
  EXPECT_EQ(lines.at("mean of the steps").back(), nlohmann::json::parse("[40,5.5]"));
  EXPECT_EQ(lines.at("of the sum").back(), nlohmann::json::parse("[40,0.0]"));
  layer.steps[3] = {};  // unknown, as in a record of an older version, so the sum of the record is judged
  alarms = routing_alarms(history);
  ASSERT_EQ(alarms.size(), 1u);
  EXPECT_TRUE(alarms[0].over);
  EXPECT_NE(html_report({.title = "", .routing = history}).find("<summary>1 past alarm</summary>"), std::string::npos);
  std::ranges::fill(layer.counts, 40);  // 4 tokens per choice and step, 8 per expert, may be uneven by chance
  EXPECT_TRUE(routing_alarms(history).empty());
}

// If half of many experts are idle in each step, MaxVio can still be small.
TEST(RoutingAlarms, TellThatMostExpertsAreIdleInAStep) {
  RoutingHistory history = history_of(1, 1, 64, 2);
  std::ranges::fill(history.layers[0].counts, 512);
  history.layers[0].steps.assign(2, {.max_vio_mean = 1.5f, .max_vio_max = 2, .idle_mean = 31, .idle_max = 40});
  EXPECT_TRUE(routing_alarms(history).empty());
  history.layers[0].steps[1].idle_mean = 32;
  const std::vector<Alarm> alarms = routing_alarms(history);
  ASSERT_EQ(alarms.size(), 1u);
  EXPECT_EQ(alarms[0].step, 20);
  for (std::size_t e = 0; e < 32; ++e) history.layers[0].counts[e] = history.layers[0].counts[64 + e] = 0;
  EXPECT_EQ(routing_alarms(history).size(), 1u) << "starved experts have their own alarm";
}

TEST(TimeMap, ColumnsAreBounded) {
  const auto columns = [](std::int64_t layers, std::int64_t top_k, std::int64_t experts, std::int64_t records) {
    RoutingHistory history;
    for (std::int64_t r = 0; r < records; ++r) history.steps.push_back(r + 1);
    for (std::int64_t l = 0; l < layers; ++l) {
      history.layers.push_back({.id = {l},
                                .top_k = top_k,
                                .experts = experts,
                                .expert_sizes = {},
                                .expert_rank = {},
                                .counts = {},
                                .mean_probability = {}});
    }
    return time_columns(history);
  };
  EXPECT_EQ(columns(24, 6, 64, 200).size(), 200u);
  EXPECT_EQ(columns(24, 6, 64, 9000).size(), 256u);
  EXPECT_EQ(columns(60, 8, 512, 9000).size(), 24u);
  const std::vector<RecordRange> merged = columns(24, 6, 64, 1001);
  EXPECT_EQ(merged.front().begin, 0u);
  EXPECT_EQ(merged.back().end, 1001u);
  for (std::size_t c = 1; c < merged.size(); ++c) EXPECT_EQ(merged[c].begin, merged[c - 1].end);
}

TEST(Chart, Ticks) {
  EXPECT_EQ(axis_ticks(0, 10, 5, false), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(-1, 1, 4, false), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(axis_ticks(1, 50, 5, true), (std::vector<double>{1, 2, 5, 10, 20, 50}));
  EXPECT_TRUE(axis_ticks(0, 10, 5, true).empty());
  EXPECT_TRUE(axis_ticks(1, 1, 5, false).empty());
  EXPECT_TRUE(axis_ticks(nan, 1, 5, false).empty());
}

TEST(Chart, Numbers) {
  EXPECT_EQ(grouped_number(0), "0");
  EXPECT_EQ(grouped_number(999), "999");
  EXPECT_EQ(grouped_number(1234567), "1,234,567");
  EXPECT_EQ(grouped_number(-123456), "-123,456");
  EXPECT_EQ(short_number(12345.4), "12,345");
  EXPECT_EQ(short_number(0.5), "0.5");
  EXPECT_EQ(escape_xml("<&>\"'\x01\xE2\x80\xAE\n"), "&lt;&amp;&gt;&quot;&#39;\\x01\\u202e\n");
}

}  // namespace
}  // namespace lyceum
