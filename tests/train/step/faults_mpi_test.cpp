#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "core/random.h"
#include "optim/checkpoint.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

/// The faults that the MPI functions below inject on this rank.
struct MessageFaults {
  std::int64_t sent = 0;                                       // messages sent so far
  std::map<std::int64_t, std::function<void()>> at_send = {};  // called before message n is sent, n from 0
  std::optional<std::size_t> flipped_bit = {};                 // bit to flip in the next message that arrives
  void* received = nullptr;                                    // buffer of that message; null before it is posted
  std::size_t bytes = 0;                                       // its size
  MPI_Request request = MPI_REQUEST_NULL;                      // its request
};
MessageFaults faults;

void flip(void* memory, std::size_t bit) {
  auto* const byte = static_cast<unsigned char*>(memory) + bit / 8;
  *byte = static_cast<unsigned char>(*byte ^ (1u << bit % 8));
}

}  // namespace
}  // namespace lyceum

// These definitions replace those of the MPI library, which exports the same functions again with the prefix PMPI_.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  const auto action = lyceum::faults.at_send.find(lyceum::faults.sent++);
  if (action != lyceum::faults.at_send.end()) action->second();
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
extern "C" int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  const int code = PMPI_Irecv(data, count, type, from, tag, comm, request);
  lyceum::MessageFaults& faults = lyceum::faults;
  if (faults.flipped_bit && !faults.received && count > 0) {
    faults.received = data;
    faults.bytes = static_cast<std::size_t>(count);
    faults.request = *request;
  }
  return code;
}
extern "C" int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* statuses) {
  lyceum::MessageFaults& faults = lyceum::faults;
  const bool awaited = faults.received && std::find(requests, requests + count, faults.request) != requests + count;
  const int code = PMPI_Testall(count, requests, done, statuses);
  if (code == MPI_SUCCESS && *done && awaited) {
    lyceum::flip(faults.received, *faults.flipped_bit % (8 * faults.bytes));
    faults.flipped_bit.reset();
    faults.received = nullptr;
  }
  return code;
}

namespace lyceum {
namespace {

using testing::HasSubstr;

Config watched_config(int zero = 0) {
  Config config = tiny_config();
  config.parallel.zero = zero;
  config.run.audit_every = 1;
  config.run.replay_every = 0;
  return config;
}

/// Runs a step, and returns the message of the Error that it throws, or an empty text.
std::string problem_of(TinyTraining& training, int step) {
  try {
    training.run_steps_only(step, 1);  // it may throw on some ranks alone
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::failed);
    return error.what();
  }
}

/// Collective. Prints how many faults of a kind were found, of those that changed a result.
void print_found(const std::string& kind, std::int64_t found, std::int64_t faults, std::int64_t harmless = 0) {
  std::array<std::int64_t, 3> all{found, faults, harmless};
  const ProcessGroup world = test_world();
  world.all_reduce(std::span(all));
  if (world.rank() != 0) return;
  std::cout << kind << ": " << all[0] << " of " << all[1] - all[2] << " found, " << all[2] << " without effect\n";
}

TEST(Faults, WatchingChangesNoBit) {
  const ProcessGroup world = test_world();
  for (const int zero : {0, 1, 2, 3}) {
    Config config = watched_config(zero);
    config.parallel.expert = std::min(world.size(), 2);
    const Trajectory watched = train(config, test_world(), 3);
    config.run.replay_every = 1;
    world.set_checksums(true);
    const Trajectory twice = train(config, test_world(), 3);
    config.run.audit_every = 0;
    config.run.replay_every = 0;
    const Trajectory plain = train(config, test_world(), 3);
    for (const Trajectory* other : {&watched, &twice}) {
      EXPECT_EQ(other->weights, plain.weights) << zero;
      for (std::size_t s = 0; s < plain.steps.size(); ++s) {
        EXPECT_EQ(other->steps[s].loss, plain.steps[s].loss);
        EXPECT_EQ(other->steps[s].grad_norm, plain.steps[s].grad_norm);
        EXPECT_EQ(other->steps[s].losses, plain.steps[s].losses);
      }
    }
  }
}

TEST(Faults, FlipsBetweenUpdatesAreFound) {
  const ProcessGroup world = test_world();
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> found{{"moments", {}}, {"weights", {}}};
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int zero : {0, 1, 2, 3}) {
      Config config = watched_config(zero);
      config.run.audit_every = 1000;  // the comparison of copies would also find the flips
      TinyTraining training(config, test_world(), type);
      training.run(0, 1);
      int step = 1;
      for (int trial = 0; trial < 12; ++trial, ++step) {
        const Philox random(static_cast<std::uint64_t>(100 * zero + trial), "flips");
        bool mine = static_cast<int>(random.below(static_cast<std::uint64_t>(world.size()), 0)) == world.rank();
        std::string kind;
        if (mine) {
          std::vector<CheckpointSlice> slices = checkpoint_slices(training.optimizer());
          std::erase_if(slices,
                        [](const CheckpointSlice& slice) { return slice.make || slice.box.extent.size() == 0; });
          mine = !slices.empty();  // with ZeRO a rank may own no element
          if (mine) {
            const CheckpointSlice& slice = slices[random.below(slices.size(), 1)];
            kind = slice.name.starts_with("optimizer/") ? "moments" : "weights";
            flip(const_cast<float*>(slice.values),
                 random.below(32 * static_cast<std::uint64_t>(slice.box.extent.size()), 2));
          }
        }
        const std::string problem = problem_of(training, step);
        EXPECT_EQ(!problem.empty(), mine) << problem;
        EXPECT_FALSE(problem.starts_with("rank ")) << "the caller adds the rank: " << problem;
        if (!mine) continue;
        found[kind].first += problem.find("changed in memory between two updates") != std::string::npos;
        ++found[kind].second;
        training.adopt();
      }
    }
  }
  for (const auto& [kind, counts] : found) {
    EXPECT_EQ(counts.first, counts.second) << kind;
    print_found(kind, counts.first, counts.second);
  }
}

TEST(Faults, FlipsOfWhatIsNotTrainedAreFound) {
  const ProcessGroup world = test_world();
  for (const int zero : {0, 3}) {
    Config config = watched_config(zero);
    config.optim.train_only = {"model/layers/*/mlp/experts/*"};
    TinyTraining training(config, test_world());
    training.run(0, 2);
    bool flipped = false;
    for (const UnitShare& share : training.zero().shares()) {
      if (flipped || share.unit->role() != ParameterUnit::Role::frozen || share.values.size() == 0) continue;
      flipped = world.rank() == world.size() - 1;
      if (flipped) flip(share.values.raw(), 17);
    }
    const std::string problem = training.optimizer().find_damage();
    EXPECT_EQ(problem.find(", which are frozen, changed in memory") != std::string::npos, flipped) << problem;
  }
}

/// Audits and replays find no fault in a correct run, with every kind of unit on every axis.
TEST(Faults, WatchingFitsEveryMesh) {
  const int world = test_world().size();
  for (const int zero : {0, 1, 3}) {
    for (const bool tied : {false, true}) {
      Config config = watched_config(zero);
      config.run.replay_every = 2;
      config.model.tie_embeddings = tied;
      if (!tied) config.optim.train_only = {"model/layers/*"};
      config.parallel.pipeline = world >= 2 ? 2 : 1;
      config.parallel.tensor = world >= 8 ? 2 : 1;
      config.parallel.expert = world >= 4 ? 2 : 1;  // with 8 ranks there still are copies of the experts
      config.batch.micro = 1;
      TinyTraining training(config, test_world());
      EXPECT_FALSE(training.run(0, 3).back().skipped);
      EXPECT_NO_THROW(training.step().audit(3));
    }
  }
}

TEST(Faults, CopiesThatDifferAreFound) {
  const ProcessGroup world = test_world();
  if (world.size() == 1) return;
  for (const int zero : {0, 1, 2}) {
    for (int trial = 0; trial < 4; ++trial) {
      TinyTraining training(watched_config(zero), test_world());
      training.run(0, 1);
      training.settle();
      const Philox random(static_cast<std::uint64_t>(10 * zero + trial), "copies");
      const int rank = static_cast<int>(random.below(static_cast<std::uint64_t>(world.size()), 0));
      const auto units = training.model().units();
      const Tensor values = units[random.below(units.size(), 1)]->values();
      if (rank == world.rank()) flip(values.raw(), random.below(8 * static_cast<std::uint64_t>(values.bytes()), 2));
      const std::string problem = problem_of(training, 1);
      const std::string named = "rank " + std::to_string(rank) + " holds a different copy than ranks";
      EXPECT_NE(problem.find(world.size() > 2 ? named : "ranks 0-1 hold different copies of elements"),
                std::string::npos)
          << problem;
    }
  }
}

/// A transient fault affects the first computation of a step, but not the second one.
TEST(Faults, WhatIsComputedTwiceMustAgree) {
  const ProcessGroup world = test_world();
  if (world.size() == 1) return;
  for (const bool gradients : {false, true}) {
    std::int64_t found = 0, harmless = 0;
    constexpr std::int64_t trials = 12;
    for (std::int64_t trial = 0; trial < trials; ++trial) {
      Config config = watched_config();
      config.run.audit_every = 0;
      TinyTraining calm(config, test_world());
      calm.run(0, 1);
      const std::int64_t before = faults.sent;
      calm.run_steps_only(1, 1);
      const std::int64_t sent = faults.sent - before;
      config.run.replay_every = 2;
      TinyTraining training(config, test_world());
      training.run(0, 1);
      const Philox random(static_cast<std::uint64_t>(trial), gradients ? "gradients" : "passes");
      if (static_cast<int>(random.below(static_cast<std::uint64_t>(world.size()), 0)) == world.rank()) {
        const auto units = training.model().units();
        const ParameterUnit* unit = units[random.below(units.size(), 1)];
        const Tensor memory = gradients ? unit->gradients() : unit->values();
        const auto bit = random.below(8 * static_cast<std::uint64_t>(memory.bytes()), 2);
        const std::int64_t at = faults.sent + static_cast<std::int64_t>(random.below(
                                                  static_cast<std::uint64_t>(gradients ? sent : sent / 2), 3));
        const auto flips = [=] { flip(memory.raw(), bit); };
        faults.at_send[at] = flips;
        if (!gradients) faults.at_send[at + sent / 4] = flips;
      }
      const std::string problem = problem_of(training, 1);
      faults.at_send.clear();
      if (problem.empty()) {
        EXPECT_EQ(training.weights(), calm.weights()) << "an undetected fault, in trial " << trial;
        ++harmless;
      } else {
        // The time of a message is not fixed. So a weight may be wrong in both computations of its rank; then the
        // comparison with another rank finds it.
        EXPECT_THAT(problem,
                    testing::AnyOf(HasSubstr("step 2 gave different results when computed twice: the "),
                                   HasSubstr(" computed step 2 from the same tokens, with different results: the ")));
        ++found;
      }
    }
    EXPECT_GT(found, 0);
    const bool tells = world.rank() == 0;  // all ranks have found the same faults: count them once
    print_found(gradients ? "gradients" : "passes", tells ? found : 0, tells ? trials : 0, tells ? harmless : 0);
  }
}

/// A wrong weight gives the same error in each computation, as a defective processor may.
TEST(Faults, AnErrorThatARankRepeatsIsFoundByAnother) {
  const ProcessGroup world = test_world();
  if (world.size() == 1) return;
  for (const int expert : {1, world.size() / 2}) {
    for (int rank = 0; rank < world.size(); ++rank) {
      Config config = watched_config();
      config.run.audit_every = 0;
      config.run.replay_every = 2;
      config.parallel.expert = expert;
      TinyTraining training(config, test_world());
      training.run(0, 1);
      if (rank == world.rank()) flip(training.model().units().back()->values().raw(), 22);
      const std::string problem = problem_of(training, 1);
      const int other = (rank + expert) % world.size(), before = (rank + world.size() - expert) % world.size();
      for (const auto& [low, high] : {std::minmax(rank, other), std::minmax(before, rank)}) {
        EXPECT_NE(problem.find(fmt::format("{} and {}", low, high)), std::string::npos) << problem;
      }
      EXPECT_NE(problem.find(" computed step 2 from the same tokens, with different results: the gradient of "),
                std::string::npos)
          << problem;
    }
  }
}

/// The gradients of a replica are in those of its original on another rank, so the message says that the ranks which
/// it names may not be the cause.
TEST(Faults, AnErrorMayBeThatOfAReplica) {
  const ProcessGroup world = test_world();
  if (world.size() < 4) return;
  for (int rank = 0; rank < world.size(); ++rank) {
    Config config = watched_config();
    config.run.audit_every = 0;
    config.run.replay_every = 2;
    config.parallel.expert = world.size() / 2;
    config.parallel.replicas = 2;
    TinyTraining training(config, test_world());
    EXPECT_GT(training.run(0, 1).back().replicas.replicas, 0);
    if (rank == world.rank()) flip(training.model().units().back()->values().raw(), 22);
    EXPECT_THAT(
        problem_of(training, 1),
        testing::AllOf(HasSubstr(" computed step 2 from the same tokens, with different results: the gradient of "),
                       HasSubstr("perhaps by another rank of its expert group, which had a replica")));
  }
}

TEST(Faults, ChangedMessagesAreFound) {
  const ProcessGroup world = test_world();
  if (world.size() == 1) return;
  const int size = world.size(), self = world.rank();
  std::int64_t found = 0, trials = 0;
  for (int trial = 0; trial < 5; ++trial) {
    for (int operation = 0; operation < 4; ++operation) {
      ProcessGroup group = test_world().on(CpuStream(1), Transport::mpi);
      group.set_checksums(true);
      const Philox random(static_cast<std::uint64_t>(trial), "messages");
      const bool mine = static_cast<int>(random.below(static_cast<std::uint64_t>(size), 0)) == self;
      const std::vector<std::int64_t> parts(static_cast<std::size_t>(size), 37);
      const Tensor all = Tensor::zeros(CpuStream(1), DType::f32, {37 * size}),
                   own = Tensor::zeros(CpuStream(1), DType::f32, {37});
      for (std::size_t i = 0; i < all.span<float>().size(); ++i) all.span<float>()[i] = static_cast<float>(i + 1);
      if (mine) faults.flipped_bit = random.below(1000, 1 + static_cast<std::uint64_t>(operation));
      std::string problem;
      try {
        switch (operation) {
          case 0: group.all_reduce_async(all).wait(); break;
          case 1: group.reduce_scatter_async(all, own, parts).wait(); break;
          case 2: group.all_gather(own, all, parts); break;
          default: {
            Pending received = group.receive_async(own, (self + size - 1) % size);
            group.send_async(all.slice(0, 37), (self + 1) % size).wait();
            received.wait();
          }
        }
      } catch (const Error& error) {
        problem = error.what();
      }
      faults = {.sent = faults.sent};
      EXPECT_EQ(problem.find("were corrupted: possible memory or network fault") != std::string::npos, mine) << problem;
      trials += mine;
      found += mine && !problem.empty();
    }
  }
  world.set_checksums(false);
  print_found("messages", found, trials);
}

}  // namespace
}  // namespace lyceum
