#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/verdict.h"
#include "support/nan.h"
#include "support/tested_world.h"
#include "support/trajectory.h"
#include "train/step/finding.h"

namespace lyceum {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// The number of one rank that is not finite. `weight`: a weight in memory. `loss`: its loss only. `gradient`: its
/// gradient before the sum over copies; `gradient_once`: only in the first computation. `sum`: its copy of that sum.
enum class Place { weight, loss, gradient, gradient_once, sum };
constexpr std::array places{Place::weight, Place::loss, Place::gradient, Place::gradient_once, Place::sum};

/// Wraps the memory of a unit, and makes one element NaN while a step uses it.
class SpoiledMemory final : public UnitMemory {
 public:
  SpoiledMemory(ParameterUnit& unit, Place place, Stream stream)
      : unit_(unit), memory_(unit.memory()), place_(place), stream_(std::move(stream)) {
    unit.set_memory(this);
  }
  ~SpoiledMemory() { unit_.set_memory(memory_); }
  void need_values(ParameterUnit& unit, Pass pass) override {
    memory_->need_values(unit, pass);
    if (place_ != Place::loss) return;
    float& value = unit.values().data<float>()[0];
    if (!whole_) whole_ = value;
    value = pass == Pass::forward ? static_cast<float>(nan) : *whole_;
  }
  void need_gradients(ParameterUnit& unit) override {
    memory_->need_gradients(unit);
    const bool now = place_ == Place::gradient || (place_ == Place::gradient_once && !std::exchange(spoiled_, true));
    if (!now) return;
    unit.parameters()[0]->clear_empty_gradient(stream_);  // the first contribution must add to the NaN
    unit.gradients().data<float>()[0] = static_cast<float>(nan);
  }

 private:
  ParameterUnit& unit_;
  UnitMemory* memory_;
  Place place_;
  Stream stream_;
  std::optional<float> whole_;
  bool spoiled_ = false;
};

/// Makes a number of the last rank NaN, which owns a part of every sharded unit. Expects that all ranks skip the step,
/// agree on the cause, and continue.
void expect_agreement(Config config, Place place) {
  ProcessGroup world = test_world();
  const int ranks = world.size(), rank = world.rank(), victim = ranks - 1;
  resolve(config, ranks);
  const auto setup = make_setup(std::move(world), mesh_shape(config.parallel));
  const TinyData data(config.model.vocab);
  const TokenLoader loader = data.loader(config);
  StagedModel model(config, setup->stream, setup->mesh, DType::f32, true);
  Zero zero(model.units(), setup->mesh, setup->stream, zero_options(config, setup->mesh));
  zero.initialize(1);
  std::vector<UnitShare> shares = zero.shares();
  const UnitShare head = shares.back();
  if (rank == victim && place == Place::sum) {
    shares.back().gradients = Tensor::zeros(setup->stream, DType::f32, {head.updated.count});
    shares.back().gradients.data<float>()[0] = static_cast<float>(nan);
  }
  Optimizer optimizer(config.optim, setup->mesh, setup->stream, shares);
  TrainStep step(config, *setup, model, zero, optimizer);

  std::optional<SpoiledMemory> spoiled;
  float weight = 0;
  if (rank == victim) {
    spoiled.emplace(*model.units().back(), place, setup->stream);
    ASSERT_GT(head.updated.count, 0);
    weight = head.values.data<float>()[0];
    if (place == Place::weight) head.values.data<float>()[0] = static_cast<float>(nan);
  }
  const StepResult bad = step.run(loader, 0, 0, 1e-2);
  EXPECT_TRUE(bad.skipped);
  EXPECT_EQ(bad.update_norm, 0);
  EXPECT_EQ(optimizer.updates(), 0);
  const std::string on_victim = " on rank " + std::to_string(victim);
  if (place == Place::weight) {
    EXPECT_THAT(bad.culprit, testing::AllOf(StartsWith("the weight "), EndsWith(on_victim)));
  } else if (place == Place::loss) {  // tensor ranks compute a loss together, so all of them have the NaN
    std::vector<int> group;
    for (int r = victim - config.parallel.tensor + 1; r <= victim; ++r) group.push_back(r);
    EXPECT_EQ(bad.culprit,
              "the loss of its tokens on rank" + std::string(group.size() > 1 ? "s " : " ") + rank_ranges(group));
  } else if (place == Place::gradient_once) {
    EXPECT_THAT(bad.culprit, testing::AllOf(StartsWith("the gradient of "), HasSubstr("(finite when the step")));
  } else {
    EXPECT_THAT(bad.culprit, testing::AllOf(StartsWith("the gradient of "), EndsWith(on_victim)));
  }
  if (place == Place::sum) return;  // this rank's sums were replaced, so it cannot continue
  spoiled.reset();
  if (rank == victim) head.values.data<float>()[0] = weight;
  zero.values_changed();
  EXPECT_FALSE(step.run(loader, 0, 0, 1e-2).skipped);
  EXPECT_EQ(optimizer.updates(), 1);
}

TEST(NonFinite, OneRanksNumberIsEveryRanksDecision) {
  const int ranks = world_size();
  if (ranks == 1) return expect_agreement(tiny_config(), Place::weight);
  std::vector<ParallelConfig> meshes(ranks > 2 ? 4 : 3);
  meshes[0].expert = ranks;
  meshes[1].tensor = 2;
  meshes[2].pipeline = 2;
  if (ranks > 2) meshes[3].tensor = meshes[3].pipeline = 2;
  for (std::size_t k = 0; k < 2 * places.size(); ++k) {  // each place with two stages of ZeRO, on two meshes
    const std::size_t p = k / 2, zero = (p + 2 * (k % 2)) % 4;
    Config config = tiny_config();
    config.parallel = meshes[k % 4 % meshes.size()];
    config.parallel.zero = static_cast<int>(zero);
    SCOPED_TRACE("place " + std::to_string(p) + " zero " + std::to_string(zero));
    expect_agreement(config, places[p]);
  }
}

TEST(NonFinite, SaysMostOfWhatIsNearestToTheCause) {
  using Kind = Finding::Kind;
  const ProcessGroup world = test_world();
  const int last = world.size() - 1;
  EXPECT_EQ(agree(world, {}).what, "");
  Finding own{Kind::norm, 0, "the norm"};
  EXPECT_EQ(agree(world, own).what, last == 0 ? "the norm on rank 0" : "the norm on ranks 0-" + std::to_string(last));
  own.add({Kind::gradient, 2 + last - world.rank(), "gradient of rank " + std::to_string(world.rank())});
  EXPECT_EQ(agree(world, own).what, "gradient of rank " + std::to_string(last) + " on rank " + std::to_string(last));
  if (world.rank() == 0) own.add({Kind::loss, 9, "a loss"});
  own.add({Kind::sum, 0, "a sum"});
  EXPECT_EQ(agree(world, own).what, "a loss on rank 0");
}

}  // namespace
}  // namespace lyceum
