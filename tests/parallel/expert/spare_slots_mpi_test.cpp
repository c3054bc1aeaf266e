#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/copy.h"
#include "core/random.h"
#include "parallel/comm/ledger.h"
#include "parallel/expert/spare_slots.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

constexpr std::int64_t slot_experts = 11, hidden_width = 3;

/// A layer of experts of three widths. Element i of the weights of expert e is 1000 · e + i.
struct SlotLayer {
  explicit SlotLayer(const ProcessGroup& group)
      : placement(Placement::contiguous(slot_experts, group.size())), unit("originals", ParameterUnit::Group::expert) {
    for (std::int64_t e = 0; e < slot_experts; ++e) widths.push_back(20 + 17 * (e % 3));
    for (std::int64_t e = 0; e < slot_experts; ++e) {
      ParameterUnit slot("slot", ParameterUnit::Group::expert);
      add(widths[static_cast<std::size_t>(e)], slot);
      elements.push_back(slot.size());
    }
    for (const std::int32_t e : placement.experts_of(group.rank())) own.push_back(add(width(e), unit));
    unit.allocate(CpuStream(), DType::f32, true);
    for (std::size_t i = 0; i < own.size(); ++i) {
      fill(own[i], placement.experts_of(group.rank())[i]);
    }
  }
  static ExpertBank::Expert add(std::int64_t width, ParameterUnit& to) {
    Parameter& in = to.add(whole_parameter("in", {width, hidden_width}, 0.0, true));
    Parameter& down = to.add(whole_parameter("down", {hidden_width, width}, 0.0, true));
    return {.in = &in, .down = &down};
  }
  std::int64_t width(std::int32_t e) const { return widths[static_cast<std::size_t>(e)]; }
  static void fill(const ExpertBank::Expert& expert, std::int32_t e) {
    float next = 1000.0F * static_cast<float>(e);
    for (const Parameter* parameter : {expert.in, expert.down}) {
      for (float& value : parameter->value.span<float>()) value = next++;
    }
  }
  SpareSlots::Experts experts() {
    return {.widths = widths, .elements = elements, .originals = &unit, .own = own, .make = add};
  }

  Placement placement;
  std::vector<std::int64_t> widths, elements;
  ParameterUnit unit;
  std::vector<ExpertBank::Expert> own;
};

/// Returns a plan whose slots hold experts of other ranks, different ones for each seed; some slots are not used.
ReplicaPlan random_plan(const SlotLayer& layer, int ranks, int slots, std::uint64_t seed) {
  const Philox random(seed, "plan");
  ReplicaPlan plan;
  for (int slot = 0; slot < ranks * slots; ++slot) {
    const auto expert = static_cast<std::int32_t>(random.below(slot_experts, static_cast<std::uint64_t>(slot)));
    const bool own = layer.placement.owner[static_cast<std::size_t>(expert)] == slot / slots;
    plan.experts.push_back(own ? -1 : expert);
    plan.rows.push_back(own ? 0 : 1);
  }
  return plan;
}

void expect_weights(const SlotLayer& layer, const SpareSlots& spare, const ReplicaPlan& plan, int rank, int slots) {
  const std::vector<ExpertBank::Expert> bank = spare.bank(plan);
  ASSERT_EQ(bank.size(), layer.own.size() + static_cast<std::size_t>(slots));
  for (int slot = 0; slot < slots; ++slot) {
    const std::int32_t expert = plan.experts[static_cast<std::size_t>(rank * slots + slot)];
    if (expert < 0) continue;
    const ExpertBank::Expert& replica = bank[layer.own.size() + static_cast<std::size_t>(slot)];
    float next = 1000.0F * static_cast<float>(expert);
    for (const Parameter* parameter : {replica.in, replica.down}) {
      ASSERT_EQ(parameter->value.size(), layer.width(expert) * hidden_width);
      for (const float value : parameter->value.span<const float>()) EXPECT_EQ(value, next++) << "expert " << expert;
    }
  }
}

/// Returns the bytes that a rank sends for those replicas of a plan that are not in `held`, in the given direction.
std::int64_t planned_bytes(const SlotLayer& layer, const ReplicaPlan& plan, std::span<const std::int32_t> held,
                           int rank, int slots, bool as_owner) {
  std::int64_t bytes = 0;
  for (std::size_t slot = 0; slot < plan.experts.size(); ++slot) {
    const std::int32_t expert = plan.experts[slot];
    if (expert < 0 || (!held.empty() && held[slot] == expert)) continue;
    const int owner = layer.placement.owner[static_cast<std::size_t>(expert)], holder = static_cast<int>(slot) / slots;
    if (rank == (as_owner ? owner : holder)) bytes += 4 * layer.elements[static_cast<std::size_t>(expert)];
  }
  return bytes;
}

TEST(SpareSlots, HoldTheWeightsOfTheirReplicas) {
  const ProcessGroup group = test_world();
  const Stream stream = CpuStream();
  for (const int slots : {1, 3}) {
    SlotLayer layer(group);
    SpareSlots spare(stream, DType::f32, group, layer.experts(), slots, slots * group.size());
    std::int64_t bytes = 0;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const ReplicaPlan plan = random_plan(layer, group.size(), slots, round / 2);  // each twice
      const std::vector<std::int32_t> held(spare.held().begin(), spare.held().end());
      bytes += planned_bytes(layer, plan, held, group.rank(), slots, true);
      const std::int64_t before = group.traffic().all_to_all;
      spare.send(stream, plan, layer.placement);
      spare.await(stream, plan, layer.placement, round % 3 == 0);
      expect_weights(layer, spare, plan, group.rank(), slots);
      EXPECT_EQ(spare.bytes_of_weights(), bytes);
      EXPECT_EQ(group.traffic().all_to_all - before, planned_bytes(layer, plan, held, group.rank(), slots, true));
    }
    spare.forget();
    const ReplicaPlan plan = random_plan(layer, group.size(), slots, 2);
    spare.send(stream, plan, layer.placement);
    spare.await(stream, plan, layer.placement, false);
    EXPECT_EQ(spare.bytes_of_weights(), bytes + planned_bytes(layer, plan, {}, group.rank(), slots, true));
  }
}

/// Two passes that take turns may replace the replicas of each other before they are used.
TEST(SpareSlots, SendAgainWhatOtherPassesHaveReplaced) {
  const ProcessGroup group = test_world();
  const Stream stream = CpuStream();
  SlotLayer layer(group);
  SpareSlots spare(stream, DType::f32, group, layer.experts(), 2, 2 * group.size());
  const ReplicaPlan one = random_plan(layer, group.size(), 2, 7), other = random_plan(layer, group.size(), 2, 8);
  spare.send(stream, one, layer.placement);
  spare.send(stream, other, layer.placement);
  spare.await(stream, one, layer.placement, true);
  expect_weights(layer, spare, one, group.rank(), 2);
  if (group.size() > 1) {
    EXPECT_THROW(spare.await(stream, other, layer.placement, false), Error);
  }
  spare.await(stream, other, layer.placement, true);
  expect_weights(layer, spare, other, group.rank(), 2);
}

TEST(SpareSlots, AddGradientsToThoseOfTheOriginals) {
  const ProcessGroup group = test_world();
  const Stream stream = CpuStream();
  constexpr int slots = 2;
  SlotLayer layer(group);
  SpareSlots spare(stream, DType::f32, group, layer.experts(), slots, slots * group.size());
  const ReplicaPlan plan = random_plan(layer, group.size(), slots, 3);
  for (float& value : layer.unit.gradients().span<float>()) value = 0.5F;
  spare.begin_gradients(stream, plan);
  const std::vector<ExpertBank::Expert> bank = spare.bank(plan);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const std::size_t index = static_cast<std::size_t>(group.rank()) * slots + slot;
    if (plan.experts[index] < 0) continue;
    for (const Parameter* parameter : {bank[layer.own.size() + slot].in, bank[layer.own.size() + slot].down}) {
      for (float& value : parameter->gradient.span<float>()) {
        EXPECT_EQ(value, 0);
        value = static_cast<float>(1 << index);
      }
    }
  }
  const std::int64_t before = group.traffic().all_to_all;
  spare.return_gradients(stream, plan, layer.placement);
  EXPECT_THROW(spare.begin_gradients(stream, plan), Error);
  spare.finish_gradients(stream);
  EXPECT_EQ(group.traffic().all_to_all - before, planned_bytes(layer, plan, {}, group.rank(), slots, false));
  EXPECT_EQ(spare.bytes_of_gradients(), planned_bytes(layer, plan, {}, group.rank(), slots, false));
  EXPECT_FALSE(bank.back().in->gradient.defined());
  const auto own = layer.placement.experts_of(group.rank());
  for (std::size_t i = 0; i < own.size(); ++i) {
    float expected = 0.5F;
    for (std::size_t slot = 0; slot < plan.experts.size(); ++slot) {
      if (plan.experts[slot] == own[i]) expected += static_cast<float>(1 << slot);
    }
    for (const Parameter* parameter : {layer.own[i].in, layer.own[i].down}) {
      for (const float value : parameter->gradient.span<const float>()) EXPECT_EQ(value, expected) << own[i];
    }
  }
}

TEST(ReplicaExchange, SendsInRounds) {
  const ProcessGroup group = test_world();
  const Stream stream = CpuStream();
  if (group.size() < 2) GTEST_SKIP() << "needs another rank";
  constexpr std::int64_t row = ReplicaExchange::row, largest = 7 * row;
  // Rank 0 has two replicas of each of the others; the second one is smaller.
  std::vector<ReplicaLink> links;
  for (int owner = 1; owner < group.size(); ++owner) {
    links.push_back({owner, 0, 0, (2 * owner - 2) * largest, largest});
    links.push_back({owner, 0, largest, (2 * owner - 1) * largest, 3 * row});
  }
  const std::int64_t held = std::ssize(links);
  for (const std::int64_t rows : {1, 2, 3, 7, 1000}) {
    ReplicaExchange exchange(group, {.elements = largest, .held = held, .lent = 2}, rows * row * 4);
    const Tensor originals = Tensor::zeros(stream, DType::f32, {2 * largest}),
                 replicas = Tensor::zeros(stream, DType::f32, {held * largest});
    const std::span<float> values = originals.span<float>();
    std::iota(values.begin(), values.end(), 1000.0F * static_cast<float>(group.rank()));
    exchange.start(stream, links, ReplicaExchange::Direction::to_replicas, originals);
    EXPECT_TRUE(exchange.in_flight());
    exchange.finish(stream, replicas);
    EXPECT_FALSE(exchange.in_flight());
    for (const ReplicaLink& link : links) {
      if (group.rank() != 0) break;
      for (std::int64_t i = 0; i < link.elements; ++i) {
        EXPECT_EQ(replicas.span<float>()[static_cast<std::size_t>(link.replica + i)],
                  1000.0F * static_cast<float>(link.owner) + static_cast<float>(link.original + i));
      }
    }
    exchange.start(stream, links, ReplicaExchange::Direction::to_originals, replicas);
    exchange.finish(stream, originals);
    for (std::int64_t i = 0; i < 2 * largest; ++i) {
      const bool sent = group.rank() > 0 && (i < largest + 3 * row);
      EXPECT_EQ(originals.span<float>()[static_cast<std::size_t>(i)],
                (sent ? 2 : 1) * (1000.0F * static_cast<float>(group.rank()) + static_cast<float>(i)));
    }
    EXPECT_EQ(exchange.bytes_sent(),
              group.rank() == 0 ? 4 * (held / 2) * (largest + 3 * row) : 4 * (largest + 3 * row));
  }
}

/// Rounds depend on the bytes of the busiest rank: none is made in which nothing is sent, except for one without links.
TEST(ReplicaExchange, MakesAsManyRoundsAsTheBytesNeed) {
  const ProcessGroup group = test_world();
  const Stream stream = CpuStream();
  const int ranks = group.size();
  if (ranks < 2) GTEST_SKIP() << "needs another rank";
  constexpr std::int64_t row = ReplicaExchange::row, largest = 6 * row;
  std::vector<ReplicaLink> all;  // every rank has a replica of an expert of the next rank
  for (int holder = 0; holder < ranks; ++holder) all.push_back({(holder + 1) % ranks, holder, 0, 0, largest});
  const auto rounds_of = [&](const std::vector<ReplicaLink>& links, std::int64_t rows_per_round) {
    ReplicaExchange exchange(group, {.elements = largest, .held = 4, .lent = 32}, rows_per_round * row * 4);
    const Tensor from = Tensor::zeros(stream, DType::f32, {largest}), to = Tensor::zeros(stream, DType::f32, {largest});
    int operations = 0;
    group.ledger().listen([&](const LedgerEntry&) { ++operations; });
    exchange.start(stream, links, ReplicaExchange::Direction::to_replicas, from);
    exchange.finish(stream, to);
    group.ledger().listen({});
    return operations;
  };
  EXPECT_EQ(rounds_of({}, 1), 1);
  EXPECT_EQ(rounds_of(all, 1), 6);
  EXPECT_EQ(rounds_of(all, 4), 2);
  EXPECT_EQ(rounds_of(all, 6), 1);
  EXPECT_EQ(rounds_of(all, 1000), 1);
  EXPECT_EQ(rounds_of({all.front()}, 3), 2) << "limits above what is sent do not matter";
}

}  // namespace
}  // namespace lyceum
