#include "io/report/comparison.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>

#include "io/report/comparison_page.h"
#include "support/nan.h"
#include "support/xml.h"

namespace lyceum {
namespace {

using PageTree = boost::property_tree::ptree;

/// Two runs of different lengths: the second diverges after step 2 and has no experts.
Comparison two_runs() {
  RunCurve even(1, 4), wild(1, 4);
  for (std::int64_t step = 1; step <= 4; ++step) {
    const auto tokens = static_cast<double>(64 * step), seconds = 0.5 * static_cast<double>(step);
    even.add({step, tokens, seconds, 4.0 - static_cast<double>(step) / 2});
    wild.add({step, tokens, seconds, step < 3 ? 4.0 : step == 3 ? 4e6 : nan});
  }
  RunSummary a{.steps = 4, .tokens = 256, .at_steps = {{.at = 4, .loss = 2.0, .valid = ValidLoss{3, 2.25}}}};
  a.max_violation = 1.5;
  a.curves.emplace(CurveKind::loss, even);
  a.curves.emplace(CurveKind::max_violation, even);
  RunSummary b{.steps = 4, .tokens = 256, .at_steps = {{.at = 4, .loss = nan, .valid = {}}}};
  b.curves.emplace(CurveKind::loss, wild);
  return {.runs = {{.name = "a <\"x\">", .file = "a/metrics.jsonl", .summary = a, .mesh = "dp 2", .configured = true},
                   {.name = "b", .file = "b/metrics.jsonl", .summary = b, .program = "0.1", .configured = true}},
          .settings = {{"optim.lr", {"0.001", "0.1"}}}};
}

std::vector<std::string> row(const std::vector<ComparisonRow>& rows, const std::string& name) {
  const auto found = std::ranges::find(rows, name, &ComparisonRow::name);
  return found == rows.end() ? std::vector<std::string>{"no such row"} : found->cells;
}

void for_each_element(const PageTree& tree, const std::function<void(const std::string&, const PageTree&)>& use) {
  for (const auto& [name, child] : tree) {
    if (name == "<xmlattr>") continue;
    use(name, child);
    for_each_element(child, use);
  }
}

TEST(Comparison, ShowsMissingNumbersAsDashes) {
  const std::vector<ComparisonRow> rows = result_rows(two_runs());
  EXPECT_EQ(row(rows, "loss at step 4"), (std::vector<std::string>{"2.0000", "nan"}));
  EXPECT_EQ(row(rows, "validation loss by step 4"), (std::vector<std::string>{"2.2500 (step 3)", "-"}));
  EXPECT_EQ(row(rows, "MaxVio of the worst layer, last 5 %"), (std::vector<std::string>{"1.500", "-"}));
  EXPECT_EQ(row(rows, "mesh"), (std::vector<std::string>{"dp 2", "-"}));
  EXPECT_EQ(row(rows, "MFU, median"), (std::vector<std::string>{"no such row"})) << "in neither run";
}

TEST(Comparison, TextHasOneColumnPerRunAndTheDifferingKeys) {
  Comparison comparison = two_runs();
  std::string text = comparison_text(comparison);
  EXPECT_NE(text.find("optim.lr"), std::string::npos) << text;
  comparison.settings.clear();
  EXPECT_NE(comparison_text(comparison).find("The known configurations are equal."), std::string::npos);
  comparison.runs[1].configured = false;
  EXPECT_NE(comparison_text(comparison).find("b: no starts.jsonl beside b/metrics.jsonl"), std::string::npos);
  for (int i = 0; i < 6; ++i) comparison.runs.push_back(comparison.runs[1]);
  text = comparison_text(comparison);
  EXPECT_NE(text.find("\n\nrun "), std::string::npos) << "eight runs are two tables:\n" << text;
}

TEST(Comparison, JsonHasNullForWhatIsNotANumber) {
  const nlohmann::json json = nlohmann::json::parse(comparison_json(two_runs()));
  EXPECT_EQ(json["runs"][0]["at_steps"][0]["loss"], 2.0);
  EXPECT_EQ(json["runs"][0]["at_steps"][0]["valid_loss"]["step"], 3);
  EXPECT_TRUE(json["runs"][1]["at_steps"][0]["loss"].is_null());
  EXPECT_TRUE(json["runs"][1]["mfu"].is_null());
  EXPECT_EQ(json["differing_keys"]["optim.lr"], nlohmann::json({"0.001", "0.1"}));
}

TEST(ComparisonPage, OverlaysTheCurvesOfAllRuns) {
  const std::string page = comparison_page(two_runs(), "lr & co");
  const PageTree tree = parsed_xml(page);
  std::vector<nlohmann::json> charts;
  std::vector<std::string> headings;
  for_each_element(tree, [&](const std::string& name, const PageTree& element) {
    if (name == "h2") headings.push_back(element.data());
    const auto lines = element.get<std::string>("<xmlattr>.data-lines", "");
    if (!lines.empty()) charts.push_back(nlohmann::json::parse(lines));
  });
  EXPECT_EQ(headings, (std::vector<std::string>{"Training loss by step", "Training loss by tokens",
                                                "Training loss by time", "MaxVio", "Results", "Configuration"}));
  ASSERT_EQ(charts.size(), 4U);
  ASSERT_EQ(charts[0].size(), 2U);
  EXPECT_EQ(charts[0][0]["name"], "a <\"x\">");
  EXPECT_EQ(charts[0][0]["points"], nlohmann::json::parse("[[1,3.5],[2,3],[3,2.5],[4,2]]"));
  EXPECT_EQ(charts[0][1]["points"], nlohmann::json::parse(R"([[1,4],[2,4],[3,4e6],[4,"NaN"]])"));
  EXPECT_EQ(charts[1][0]["points"][3], nlohmann::json::parse("[256,2]"));
  EXPECT_EQ(charts[2][0]["points"][3], nlohmann::json::parse("[2000,2]")) << "milliseconds";
  EXPECT_EQ(charts[3].size(), 1U) << "a run without experts has no curve";
  EXPECT_NE(page.find("values above 21 are at the upper edge"), std::string::npos) << "6 times the median, 3.5";
}

TEST(ComparisonPage, HasNoChartsWithoutSteps) {
  const std::string page =
      comparison_page({.runs = {{.name = "new", .file = "new/metrics.jsonl", .summary = {}}}}, "t");
  const PageTree tree = parsed_xml(page);
  EXPECT_EQ(page.find("<figure>"), std::string::npos);
  EXPECT_NE(page.find("its configuration is unknown"), std::string::npos);
}

TEST(RunNames, HaveAsManyFoldersAsTheyNeed) {
  EXPECT_EQ(run_names({"/x/a/metrics.jsonl", "/x/b/metrics.jsonl"}), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(run_names({"/x/a/run/metrics.jsonl", "/x/b/run/metrics.jsonl"}),
            (std::vector<std::string>{"a/run", "b/run"}));
  EXPECT_EQ(run_names({"/x/first.jsonl", "/x/second.jsonl"}), (std::vector<std::string>{"first", "second"}));
  const std::vector<std::string> same = run_names({"/x/a/metrics.jsonl", "/x/a/metrics.jsonl"});
  EXPECT_NE(same[0], same[1]);
  EXPECT_EQ(run_names({"/metrics.jsonl"}).size(), 1U);
}

}  // namespace
}  // namespace lyceum
