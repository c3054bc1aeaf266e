// The operations of a rehearsal are the operations that a rank calls in a real step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "config/binding.h"
#include "parallel/comm/sequences.h"
#include "support/tested_world.h"
#include "support/trajectory.h"
#include "train/run/preflight.h"

namespace lyceum {
namespace {

using testing::HasSubstr;

using Channel = std::tuple<std::string, int, int>;  // group; sender and receiver of messages
/// Returns the operations on each channel in order, as text with sizes and source locations.
std::map<Channel, std::vector<std::string>> by_channel(const std::vector<LedgerEntry>& entries) {
  std::map<Channel, std::vector<std::string>> channels;
  for (LedgerEntry entry : entries) {
    auto& channel = channels[{entry.group_name.data(), entry.from, entry.to}];
    entry.index =
        static_cast<std::int64_t>(channel.size());  // in a real group, operations before the step were counted
    channel.push_back(entry.text() + " of " + std::to_string(entry.members));
  }
  return channels;
}

/// Returns the bytes of each kind of operation, except for those that depend on which experts tokens choose.
std::vector<std::int64_t> fixed_traffic(const ProcessGroup& group) {
  const ProcessGroup::Traffic& traffic = group.traffic();
  return {traffic.all_reduce, traffic.reduce_scatter, traffic.all_gather, traffic.send, traffic.broadcast};
}

std::vector<const ProcessGroup*> groups_of(const Mesh& mesh) {
  std::vector<const ProcessGroup*> groups{&mesh.data,   &mesh.tensor,        &mesh.pipeline,   &mesh.data_tensor,
                                          &mesh.expert, &mesh.expert_tensor, &mesh.expert_data};
  if (mesh.expert_hosts) groups.insert(groups.end(), {&mesh.expert_hosts->across, &mesh.expert_hosts->within});
  return groups;
}

void expect_step_as_rehearsed(const Config& config, const std::string& name) {
  SCOPED_TRACE(name);
  TinyTraining training(config, test_world(), working_type(config.run));
  const std::unique_ptr<LivePlacement> live =
      config.parallel.replace_every == 1 ? training.live_placement() : std::unique_ptr<LivePlacement>();
  const Mesh& mesh = training.setup().mesh;
  std::vector<LedgerEntry> called;
  std::vector<std::vector<std::int64_t>> before;
  for (const ProcessGroup* group : groups_of(mesh)) before.push_back(fixed_traffic(*group));
  mesh.world.ledger().listen([&](const LedgerEntry& entry) { called.push_back(entry); });
  training.run_steps_only(0, 1);
  if (live) live->rehearse();
  mesh.world.ledger().listen({});

  Config resolved = config;
  resolve(resolved, mesh.world.size());
  const TinyData data(config.model.vocab);
  const StepRehearsal rehearsal = rehearse_step(resolved, data.loader(resolved), mesh.world.rank(), mesh.world.size());
  const auto expected = by_channel(rehearsal.operations), real = by_channel(called);
  EXPECT_EQ(mesh.world.size() > 1, !real.empty());
  ASSERT_EQ(real.size(), expected.size());
  for (const auto& [channel, operations] : real) {
    ASSERT_TRUE(expected.contains(channel)) << std::get<0>(channel);
    EXPECT_EQ(operations, expected.at(channel)) << std::get<0>(channel);
  }
  for (std::size_t g = 0; g < before.size(); ++g) {
    if (groups_of(mesh)[g] == &mesh.expert_tensor) continue;  // all its traffic depends on the choices of tokens
    std::vector<std::int64_t> bytes = fixed_traffic(*groups_of(mesh)[g]);
    for (std::size_t kind = 0; kind < bytes.size(); ++kind) bytes[kind] -= before[g][kind];
    EXPECT_EQ(bytes, fixed_traffic(*groups_of(rehearsal.mesh)[g])) << groups_of(mesh)[g]->name();
  }
  require_matching(mesh.world, rehearsal.operations);
}

TEST(Preflight, EveryMeshDoesWhatItsRehearsalSays) {
  const int world = test_world().size();
  for (const int tensor : {1, 2}) {
    for (const int expert : {1, 2, 4}) {
      for (const int expert_tensor : {1, 2}) {
        for (const int zero : {0, 1, 2, 3}) {
          if (world % tensor || world % (expert * expert_tensor)) continue;
          Config config = tiny_config();
          config.moe.expert_sizes = {5, 11, 7, 2, 16, 9, 33, 2, 8};  // every rank holds a part of each
          config.parallel.tensor = tensor;
          config.parallel.expert = expert;
          config.parallel.expert_tensor = expert_tensor;
          config.parallel.zero = zero;
          config.parallel.sequence = tensor > 1 && zero % 2;
          config.parallel.host_ranks = zero % 2 ? 2 * expert_tensor : 0;
          config.batch.micro = zero == 3 ? 1 : 0;
          config.model.recompute = zero == 2 ? Recompute::full : Recompute::none;
          config.balance.scope = zero == 1 ? BalanceScope::batch : BalanceScope::sequence;
          if (half_has_same_axes(config.parallel, world)) continue;
          expect_step_as_rehearsed(config, "tp" + std::to_string(tensor) + " ep" + std::to_string(expert) + " etp" +
                                               std::to_string(expert_tensor) + " zero " + std::to_string(zero));
        }
      }
    }
  }
}

/// Muon's rounds are operations of groups that ranks of other stages and experts do not have.
TEST(Preflight, MatricesForMuonToo) {
  const int world = test_world().size();
  for (int zero = 0; zero <= 3; ++zero) {
    for (const ParallelConfig& parallel :
         {ParallelConfig{.zero = zero}, ParallelConfig{.tensor = 2, .expert_tensor = 2, .zero = zero},
          ParallelConfig{.pipeline = 2, .expert = 2, .zero = zero}}) {
      Config config = tiny_config();
      config.parallel = parallel;
      config.optim.rule = UpdateRuleName::muon;
      if (!contradictions(config, world).empty()) continue;
      expect_step_as_rehearsed(config, "zero " + std::to_string(zero));
    }
  }
}

TEST(Preflight, PipelinesToo) {
  const int world = test_world().size();
  const std::vector schedules{ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble,
                              ScheduleKind::interleaved};
  for (const int pipeline : {2, 4}) {
    for (int i = 0; i < std::ssize(schedules); ++i) {
      if (world % pipeline) continue;
      Config config = tiny_config();
      config.model.layers = 2 * pipeline + 1;
      config.parallel.pipeline = pipeline;
      config.parallel.schedule = schedules[static_cast<std::size_t>(i)];
      config.parallel.virtual_stages = i == 3 ? 2 : 1;
      config.parallel.tensor = world / pipeline > 1 && i % 2 ? 2 : 1;
      config.parallel.sequence = config.parallel.tensor > 1 && i == 3;
      config.parallel.expert = world / pipeline;
      config.parallel.zero = i;
      config.model.tie_embeddings = i != 1;
      config.batch.micro = 1;
      config.batch.global = 8;
      expect_step_as_rehearsed(config, name_of(config.parallel.schedule) + " over " + std::to_string(pipeline));
    }
  }
}

TEST(Preflight, BatchesThatOverlapToo) {
  const int world = test_world().size();
  for (const int tensor : {1, 2}) {
    for (const int expert : {1, 2, 4, 8}) {
      for (const int zero : {0, 1, 2}) {
        Config config = tiny_config();
        config.moe.expert_sizes = {5, 11, 7, 2, 16, 9, 33, 2, 8};  // every rank holds a part of each
        config.parallel = {.tensor = tensor, .expert = expert, .zero = zero, .overlap = Overlap::batches};
        config.parallel.expert_tensor = zero == 2 && world % (2 * expert) == 0 ? 2 : 1;
        config.parallel.sequence = tensor > 1 && zero == 1;
        config.parallel.host_ranks = zero == 1 ? 2 : 0;
        config.batch = {.global = 24, .micro = 1, .seq_len = 12};
        config.model.recompute = static_cast<Recompute>(zero);
        config.balance.scope = zero == 0 ? BalanceScope::batch : BalanceScope::sequence;
        if (!contradictions(config, world).empty() || half_has_same_axes(config.parallel, world)) continue;
        expect_step_as_rehearsed(
            config, "tp" + std::to_string(tensor) + " ep" + std::to_string(expert) + " zero " + std::to_string(zero));
      }
    }
  }
}

/// A step after which experts move.
TEST(Preflight, MovesOfExpertsToo) {
  const int world = test_world().size();
  for (int zero = 0; zero <= 3; ++zero) {
    for (const ParallelConfig& parallel : {ParallelConfig{.expert = 2, .zero = zero},
                                           ParallelConfig{.tensor = 2, .expert = 2, .expert_tensor = 2, .zero = zero},
                                           ParallelConfig{.pipeline = 2, .expert = 2, .zero = zero}}) {
      Config config = tiny_config();
      config.moe.expert_sizes.clear();
      config.parallel = parallel;
      config.parallel.replace_every = 1;
      if (!contradictions(config, world).empty()) continue;
      expect_step_as_rehearsed(config, "zero " + std::to_string(zero));
    }
  }
}

/// Which weights and gradients are sent depends on the choices of tokens, but not how often.
TEST(Preflight, ReplicasOfExpertsToo) {
  const int world = test_world().size();
  for (int zero = 0; zero <= 3; ++zero) {
    for (ParallelConfig parallel :
         {ParallelConfig{.expert = 2, .zero = zero}, ParallelConfig{.expert = 4, .zero = zero, .host_ranks = 2},
          ParallelConfig{.tensor = 2, .expert = 2, .expert_tensor = 2, .zero = zero},
          ParallelConfig{.pipeline = 2, .expert = 2, .zero = zero}}) {
      Config config = tiny_config();
      config.moe.expert_sizes = {5, 11, 7, 2, 16, 9, 33, 2, 8};  // every rank holds a part of each
      parallel.replicas = 1 + zero % 2;
      config.parallel = parallel;
      config.batch = {.global = 24, .micro = 1, .seq_len = 12};
      config.model.recompute = static_cast<Recompute>(zero % 3);
      if (!contradictions(config, world).empty()) continue;
      expect_step_as_rehearsed(config, "zero " + std::to_string(zero));
      config.parallel.overlap = Overlap::batches;
      if (contradictions(config, world).empty())
        expect_step_as_rehearsed(config, "zero " + std::to_string(zero) + " by turns");
    }
  }
}

TEST(Preflight, OtherPrecisionsAndModelsToo) {
  const int world = test_world().size();
  Config config = tiny_config();
  config.run.precision = Precision::bf16;
  config.parallel.tensor = world > 1 ? 2 : 1;
  config.parallel.expert = world / config.parallel.tensor;
  config.model.tie_embeddings = true;
  expect_step_as_rehearsed(config, "bf16, tied");
  config = tiny_config();
  config.moe.experts = 0;
  config.moe.expert_sizes = {};
  config.moe.shared_experts = 0;
  config.balance = {};
  config.model.first_dense_layers = 0;
  config.parallel.zero = 2;
  expect_step_as_rehearsed(config, "dense");
}

TEST(Preflight, TakesNoMemoryToSpeakOf) {
  // This model would take 40 GB in f32 with gradients and moments.
  Config config = tiny_config();
  config.model.hidden = 4096;
  config.model.heads = 32;
  config.model.kv_heads = 32;
  config.model.head_dim = 128;
  config.model.ffn_hidden = 16384;
  config.model.vocab = 32000;
  config.moe.expert_sizes = {};
  config.moe.experts = 64;
  config.moe.expert_hidden = 1024;
  const ProcessGroup world = test_world();
  resolve(config, world.size());
  const TinyData data(61);
  const StepRehearsal rehearsal = rehearse_step(config, data.loader(config), world.rank(), world.size());
  EXPECT_EQ(world.size() > 1, !rehearsal.operations.empty());
  std::ifstream status("/proc/self/status");
  std::int64_t resident = 0;  // kB
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> resident;
  }
  EXPECT_GT(resident, 0);
  EXPECT_LT(resident, 500'000);
}

TEST(Preflight, AnotherConfigurationIsNamed) {
  const ProcessGroup world = test_world();
  if (world.size() < 2) GTEST_SKIP() << "needs two ranks";
  Config config = tiny_config();
  resolve(config, world.size());
  EXPECT_NO_THROW(require_same_config(world, to_ini(config)));
  if (world.rank() == 1) config.parallel.zero = 2;
  try {
    require_same_config(world, to_ini(config));
    ADD_FAILURE() << "came back";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 has parallel.zero = 2, rank 0 has parallel.zero = 0"));
  }
}

TEST(Preflight, RefusesRanksOfAnotherBuild) {
  const ProcessGroup world = test_world();
  require_one_program(world, "1.0 (commit a)");
  if (world.size() < 4) return;
  const std::string own = world.rank() == 2 ? "1.0 (commit b)" : world.rank() == 3 ? "1.1" : "1.0 (commit a)";
  try {
    require_one_program(world, own);
    ADD_FAILURE() << "trained together";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_STREQ(error.what(),
                 "rank 2 runs lyceum 1.0 (commit b); rank 3 runs lyceum 1.1; rank 0 runs lyceum 1.0 (commit a): start "
                 "every rank with the same build");
  }
}

}  // namespace
}  // namespace lyceum
