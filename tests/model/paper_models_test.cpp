#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>

#include "io/config_binding.h"
#include "io/config_check.h"
#include "model/counts.h"

namespace lyceum {
namespace {

const std::filesystem::path papers = std::filesystem::path(LYCEUM_SOURCE_DIR) / "configs/papers";

/// A number as a paper prints it, and half a unit of its last printed digit.
struct Figure {
  double value, half;
};
constexpr double million = 1e6, billion = 1e9, trillion = 1e12;

/// What a paper's number of activated parameters counts.
enum class Activated {
  all,       // DeepSeekMoE: both embeddings once each
  matrices,  // MoHD, ModuleFormer: attention and FFN; without embeddings, routers, norms and fusion
};

struct PaperModel {
  const char* name;
  const char* table;
  Activated convention;
  std::optional<Figure> total, activated, experts_total, experts_activated, flops;
};

constexpr Figure billions(double value) { return {value * billion, 0.05 * billion}; }
constexpr Figure hundredths(double value) { return {value * billion, 0.005 * billion}; }
constexpr Figure millions(double value) { return {value * million, 0.5 * million}; }
constexpr Figure trillions(double value) { return {value * trillion, 0.05 * trillion}; }
constexpr std::nullopt_t none = std::nullopt;

const std::vector<PaperModel>& models() {
  using enum Activated;
  static const std::vector<PaperModel> list{
      // DeepSeekMoE: total, activated, experts total and activated, FLOPs of one sequence (2K or 4K tokens).
      {"dense-0.2b", "Table 1", all, billions(0.2), billions(0.2), none, none, trillions(2.9)},
      {"hash-2b", "Table 1", all, billions(2.0), billions(0.2), none, none, trillions(2.9)},
      {"switch-2b", "Table 1", all, billions(2.0), billions(0.2), none, none, trillions(2.9)},
      {"gshard-2b", "Table 1", all, billions(2.0), billions(0.3), none, none, trillions(4.3)},
      {"deepseekmoe-2b", "Tables 1 and 2", all, billions(2.0), billions(0.3), hundredths(1.89), hundredths(0.24),
       trillions(4.3)},
      {"gshard-x1.2", "Table 8", all, none, none, billions(2.3), hundredths(0.28), none},
      {"gshard-x1.5", "Tables 2 and 8", all, none, none, hundredths(2.83), hundredths(0.35), trillions(5.8)},
      {"dense-x4", "Table 9", all, none, none, hundredths(0.47), hundredths(0.47), none},
      {"dense-x16", "Tables 2 and 9", all, none, none, hundredths(1.89), hundredths(1.89), trillions(24.6)},
      {"deepseekmoe-16b", "Table 3", all, billions(16.4), billions(2.8), none, none, trillions(74.4)},
      {"deepseekmoe-145b", "Table 6", all, billions(144.6), billions(22.2), none, none, trillions(585.6)},
      // The table's 12.2B activated contradict its own FLOPs, which need 13.6B.
      {"deepseekmoe-142b-half", "Table 6", all, billions(142.3), billions(13.6), none, none, trillions(374.6)},
      {"gshard-137b", "Table 6", all, billions(136.5), billions(21.6), none, none, trillions(572.7)},
      // MoHD: total, activated.
      {"llama2-355m", "Table 1", matrices, millions(355), millions(289), none, none, none},
      {"llama2-495m", "Table 1", matrices, millions(495), millions(396), none, none, none},
      {"llama2-1.13b", "Table 1", matrices, hundredths(1.13), Figure{1e9, 0.5e9}, none, none, none},
      {"mohd-50-355m", "Table 2", matrices, millions(355), millions(145), none, none, none},
      {"mohd-75-355m", "Table 2", matrices, millions(355), millions(217), none, none, none},
      {"mohd-x2-355m", "Table 2", matrices, millions(710), millions(289), none, none, none},
      {"mohd-x3-355m", "Table 2", matrices, hundredths(1.06), millions(289), none, none, none},
      {"mohd-x4-355m", "Table 2", matrices, hundredths(1.42), millions(289), none, none, none},
      {"mohd-50-495m", "Table 2", matrices, millions(495), millions(198), none, none, none},
      {"mohd-75-495m", "Table 2", matrices, millions(495), millions(297), none, none, none},
      {"mohd-x2-495m", "Table 2", matrices, millions(989), millions(396), none, none, none},
      {"mohd-x3-495m", "Table 2", matrices, hundredths(1.48), millions(396), none, none, none},
      {"mohd-x4-495m", "Table 2", matrices, hundredths(1.98), millions(396), none, none, none},
      {"mohd-50-1.13b", "Table 2", matrices, hundredths(1.13), millions(503), none, none, none},
      {"mohd-75-1.13b", "Table 2", matrices, hundredths(1.13), millions(755), none, none, none},
      {"mohd-x2-1.13b", "Table 2", matrices, hundredths(2.27), Figure{1e9, 0.5e9}, none, none, none},
      {"mohd-x3-1.13b", "Table 2", matrices, hundredths(3.41), Figure{1e9, 0.5e9}, none, none, none},
      {"mohd-x4-1.13b", "Table 2", matrices, hundredths(4.55), Figure{1e9, 0.5e9}, none, none, none},
      // ModuleFormer rounds: 4B and 700M have one digit, 350M two.
      {"molm-4b-k2", "Table 1", matrices, Figure{4e9, 0.5e9}, Figure{350e6, 5e6}, none, none, none},
      {"molm-4b-k4", "Table 1", matrices, Figure{4e9, 0.5e9}, Figure{700e6, 50e6}, none, none, none},
      {"molm-8b-k2", "Table 1", matrices, Figure{8e9, 0.5e9}, Figure{700e6, 50e6}, none, none, none},
      // MoDSE prints no sums; what it says of them is tested below.
      {"moe-300mx8", "Tables 1 and 2", all, none, none, none, none, none},
      {"modse-300mx8", "Tables 1 and 2", all, none, none, none, none, none},
      {"moe-700mx8", "Tables 1 and 2", all, none, none, none, none, none},
      {"modse-700mx8", "Tables 1 and 2", all, none, none, none, none, none},
  };
  return list;
}

Config load(const std::string& name) {
  Config config = load_config(std::vector<std::string>{"--config", (papers / (name + ".ini")).string()}).config;
  EXPECT_TRUE(contradictions(config, 1).empty()) << contradictions(config, 1).front();
  resolve(config, 1);
  return config;
}

/// Within a share of the paper's figure, or what prints as that figure.
void expect_figure(double counted, const std::optional<Figure>& figure, double share, const std::string& what) {
  if (!figure) return;
  EXPECT_TRUE(std::abs(counted - figure->value) <= std::max(share * figure->value, figure->half))
      << what << ": " << counted << ", the paper prints " << figure->value;
}

double number(std::int64_t value) { return static_cast<double>(value); }

TEST(PaperModels, HaveTheSizesOfTheirTables) {
  for (const PaperModel& paper : models()) {
    const ModelCounts counts = count_model(load(paper.name));
    const std::string what = std::string(paper.name) + ", " + paper.table + ", ";
    const BlockCounts& blocks = counts.blocks;
    const Count matrices = blocks.attention + blocks.ffn + blocks.shared + blocks.routed;
    expect_figure(number(counts.parameters), paper.total, 0.01, what + "total");
    expect_figure(number(paper.convention == Activated::all ? counts.activated : matrices.activated), paper.activated,
                  0.01, what + "activated");
    expect_figure(number(counts.experts_total), paper.experts_total, 0.01, what + "experts");
    expect_figure(number(counts.experts_activated), paper.experts_activated, 0.01, what + "activated experts");
    expect_figure(counts.flops_per_sequence, paper.flops, 0.025, what + "FLOPs");
  }
}

/// MoDSE, section 3.2: pairs keep the sum of the widths, so the model has the parameters of its baseline.
TEST(PaperModels, DiverseExpertsHaveTheParametersOfEqualOnes) {
  for (const std::string size : {"300mx8", "700mx8"}) {
    const ModelCounts equal = count_model(load("moe-" + size)), diverse = count_model(load("modse-" + size));
    EXPECT_EQ(diverse.parameters, equal.parameters);
    EXPECT_EQ(diverse.activated, equal.activated);
    EXPECT_EQ(diverse.experts_total / 4, equal.experts_activated);  // 2 of 8
  }
}

TEST(PaperModels, AreAllInTheTable) {
  std::set<std::string> files, names;
  for (const auto& entry : std::filesystem::directory_iterator(papers)) files.insert(entry.path().stem().string());
  for (const PaperModel& paper : models()) names.insert(paper.name);
  EXPECT_EQ(files, names);
}

}  // namespace
}  // namespace lyceum
