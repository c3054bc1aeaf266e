#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "apps/checkpoint_diff.h"
#include "apps/commands.h"
#include "support/checkpoint_model.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int code;
  std::string text;
};

/// Runs the command. Returns its exit code and output, or those of main() for an Error.
Outcome run(const std::vector<std::string>& words) {
  testing::internal::CaptureStdout();
  try {
    const int code = checkpoint_command(words);
    return {code, testing::internal::GetCapturedStdout()};
  } catch (const Error& error) {
    testing::internal::GetCapturedStdout();
    return {static_cast<int>(error.code()), error.what()};
  }
}

class CheckpointCommand : public testing::Test {
 protected:
  /// Saves a checkpoint with `w` [2, 3] of these values, two layers and an optimizer moment.
  void save(const fs::path& root, std::int64_t step, const std::vector<float>& w) {
    TestSlices slices;
    for (const char* name : {"model/layers/10/mlp/weight", "model/layers/2/mlp/weight", "optimizer/exp_avg/w"}) {
      slices.add({name, {4, 5}});
    }
    slices.get().push_back({"w", {2, 3}, Box::whole({2, 3}), w.data()});
    write_checkpoint(ProcessGroup::self(), root,
                     {.run_uuid = "f00d", .step = step, .mesh = "dp 2", .config = "[run]\n", .trainer_state = "{}"},
                     slices.get());
  }
  TemporaryDirectory directory_;
  fs::path a_ = directory_.path() / "a", b_ = directory_.path() / "b";
  std::vector<float> values_ = {1, 2, 3, 4, 5, 6};
};

TEST_F(CheckpointCommand, ListsWhatIsThereAndWhetherItIsComplete) {
  save(a_, 1, values_);
  save(a_, 20, values_);
  EXPECT_THAT(run({"ls", a_}).text,
              AllOf(HasSubstr("step-00000020    20  dp 2"), HasSubstr("yes"), Not(HasSubstr("no:"))));
  fs::remove(a_ / "step-00000001" / "rank-00000.h5");
  fs::create_directory(a_ / "step-00000003");
  const Outcome damaged = run({"ls", a_});
  EXPECT_EQ(damaged.code, 0);
  EXPECT_THAT(damaged.text, AllOf(HasSubstr("rank-00000.h5: missing"), HasSubstr("manifest.json: missing")));
  EXPECT_EQ(run({"ls", directory_.path() / "none"}).code, 3);
}

TEST_F(CheckpointCommand, ShowsGroupsOrAllTensors) {
  save(a_, 7, values_);
  const std::string text = run({"show", a_}).text;
  EXPECT_THAT(text, AllOf(HasSubstr("f00d"), HasSubstr("dp 2"), HasSubstr("46"), HasSubstr("optimizer/exp_avg")));
  EXPECT_LT(text.find("model/layers/2 "), text.find("model/layers/10 "));
  EXPECT_THAT(text, Not(HasSubstr("mlp")));
  EXPECT_THAT(run({"show", a_ / "step-00000007", "--all"}).text, HasSubstr("model/layers/10/mlp/weight  f32   [4, 5]"));
}

TEST_F(CheckpointCommand, VerifiesByReading) {
  save(a_, 7, values_);
  EXPECT_EQ(run({"verify", a_}).code, 0);
  const fs::path shard = a_ / "step-00000007" / "rank-00000.h5";
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(900);
  const int byte = file.get();
  file.seekp(900);
  file.put(static_cast<char>(byte ^ 1));
  file.close();
  const Outcome damaged = run({"verify", a_});
  EXPECT_EQ(damaged.code, 3);
  EXPECT_THAT(damaged.text, HasSubstr(shard.string()));
}

TEST_F(CheckpointCommand, DiffTellsHowFarApart) {
  save(a_, 1, values_);
  save(b_, 2, values_);
  EXPECT_EQ(run({"diff", a_, b_}).code, 0);
  EXPECT_THAT(run({"diff", a_, b_}).text, HasSubstr("4 tensors, equal bit for bit"));
  std::vector<float> other = values_;
  other[1] = 2.5f;
  other[5] = -6.f;
  save(b_, 2, other);
  const Outcome apart = run({"diff", a_, b_});
  EXPECT_EQ(apart.code, 1);
  EXPECT_THAT(apart.text,
              AllOf(HasSubstr("w "), HasSubstr("12"), HasSubstr("4 of 6 equal"), HasSubstr("3 tensors equal")));
  other = values_;
  other[0] = std::numeric_limits<float>::quiet_NaN();
  save(b_, 2, other);
  EXPECT_EQ(run({"diff", a_, b_}).code, 1);
  EXPECT_THAT(run({"diff", a_, b_}).text, HasSubstr("nan"));
  EXPECT_EQ(run({"diff", b_, b_}).code, 0);  // NaN with equal bits
}

TEST_F(CheckpointCommand, DiffNamesWhatOnlyOneHas) {
  save(a_, 1, values_);
  TestSlices slices;
  slices.add({"w", {6}});
  slices.add({"extra", {1}});
  write_checkpoint(ProcessGroup::self(), b_, {}, slices.get());
  const Outcome outcome = run({"diff", a_, b_});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("only in A"), HasSubstr("only in B"), HasSubstr("[2, 3] in A, [6] in B")));
}

TEST_F(CheckpointCommand, DifferencesAreRightAlsoAcrossSlabs) {
  const TestTensor tensor{"big", {4100, 4100}};  // larger than one slab
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.size()), 1.f);
  const auto save_big = [&](const fs::path& root) {
    const CheckpointSlice slice{"big", tensor.shape, Box::whole(tensor.shape), values.data()};
    write_checkpoint(ProcessGroup::self(), root, {}, std::span(&slice, 1));
  };
  save_big(a_);
  values.front() = 1.25f;
  values.back() = 3.f;
  save_big(b_);
  const CheckpointReader a(resolve_checkpoint(a_)), b(resolve_checkpoint(b_));
  const TensorDifference d = difference(a, b, a.tensors()[0]);
  EXPECT_EQ(d.elements, 4100 * 4100);
  EXPECT_EQ(d.equal, 4100 * 4100 - 2);
  EXPECT_EQ(d.max_absolute, 2.0);
  EXPECT_EQ(d.max_relative, 2.0 / 3.0);
}

TEST_F(CheckpointCommand, WrongUseIsExitCodeTwo) {
  save(a_, 1, values_);
  const std::vector<std::vector<std::string>> wrong = {
      {}, {"frobnicate"}, {"ls"}, {"diff", a_}, {"show", a_, a_}, {"ls", a_, "--all"}, {"show", a_, "--every"}};
  for (const auto& words : wrong) EXPECT_EQ(run(words).code, 2);
  EXPECT_EQ(run({"--help"}).code, 0);
  EXPECT_EQ(run({"show", directory_.path()}).code, 3);
}

}  // namespace
}  // namespace lyceum
