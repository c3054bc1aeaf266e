#include "train/step/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "optim/tensor_digest.h"
#include "train/step/audit.h"

namespace lyceum {

namespace {

/// Keeps the digest of every gradient as it is before the sum over copies.
class DigestObserver final : public PassObserver {
 public:
  DigestObserver(const Stream& stream, int layers) : stream_(stream), layers_(layers) {}

  void on_output(int, const Tensor&) override {}
  void on_gradient(const Parameter& parameter) override {
    digests.add({Finding::Kind::gradient, layers_ - parameter.unit->layer(), "the gradient of " + parameter.name},
                digest_of(stream_, parameter.gradient));
  }
  /// Adds the digests of the sums over copies and micro-batches.
  void add_sums(std::span<const UnitShare> shares) {
    for (const UnitShare& share : shares) {
      digests.add({Finding::Kind::sum, layers_ - share.unit->layer(), "the summed gradient of " + share.unit->name()},
                  digest_of(stream_, share.gradients));
    }
  }

  GradientDigests digests;

 private:
  const Stream& stream_;
  int layers_;
};

}  // namespace

/// Returns the distance, in data ranks, to a rank that can compute the step of this rank with the same bits. Such a
/// rank holds copies of the same parameters and has the same processor. Returns 0 if there is none.
int Replay::distance_to_copy() const {
  const Mesh& mesh = setup.mesh;
  const auto has_same_processor = [&](const RankResources& rank_resources) {
    return rank_resources.processor == setup.resources[0].processor &&
           rank_resources.threads == setup.resources[0].threads;
  };
  // A balance loss over the batch is summed over ranks in their order, so its gradients depend on the rank.
  if (first_step || config.balance.scope != BalanceScope::sequence ||
      !std::ranges::all_of(setup.resources, has_same_processor)) {
    return 0;
  }
  const int tensor = mesh.tensor.size();
  const int distance = std::lcm(mesh.expert.size() * mesh.expert_tensor.size(), tensor) / tensor;
  return distance < mesh.data.size() ? distance : 0;
}

std::vector<TimedAction> Replay::run(StepPasses& passes, const TokenLoader& loader, std::int64_t first_sample,
                                     std::int64_t step) const {
  const ProcessGroup &world = setup.mesh.world, &data = setup.mesh.data;
  const std::string advice = advice_on_old_faults(std::max<std::int64_t>(0, step - config.run.replay_every));
  // The gradients of an expert contain those that its replicas return.
  const std::string_view suspects =
      config.parallel.replicas > 0
          ? " (for an expert, perhaps by another rank of its expert group, which had a replica)"
          : "";
  std::vector<TimedAction> trace;
  const auto digests_of_passes = [&] {
    DigestObserver observer(setup.stream, layers);
    trace = passes.run(&observer);
    observer.add_sums(shares);
    return std::move(observer.digests);
  };
  const GradientDigests first = digests_of_passes();
  GradientDigests of_other;
  const int distance = distance_to_copy();
  if (distance > 0) {
    passes.load(loader, first_sample, (data.rank() + distance) % data.size());
    of_other = digests_of_passes();
    passes.load(loader, first_sample, data.rank());
  }
  const GradientDigests again = digests_of_passes();
  const Finding changed = agree(world, first.difference(again));
  require(changed.kind == Finding::Kind::none,
          "step {} gave different results when computed twice: {}{}: possible processor, memory or network fault; {}",
          step, changed.what, suspects, advice);
  if (distance == 0) return trace;
  const Finding differs = agree(world, again.difference(data, distance, of_other));
  if (differs.kind == Finding::Kind::none) return trace;
  std::set<std::pair<int, int>> pairs;
  for (const int rank : differs.ranks) {
    const int at = setup.mesh.shape.index_of(rank, world.size()).data;
    pairs.insert(std::minmax({rank, rank + ((at + distance) % data.size() - at) * setup.mesh.tensor.size()}));
  }
  std::string ranks;
  for (const auto& [one, other] : pairs) ranks += fmt::format("{}{} and {}", ranks.empty() ? "" : ", ", one, other);
  fail(ExitCode::failed,
       "ranks {} computed step {} from the same tokens, with different results: {}{}: possible processor fault; {}",
       ranks, step, differs.what, suspects, advice);
}

}  // namespace lyceum
