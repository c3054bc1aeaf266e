#include "config/parallel.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"
#include "parallel/expert/placement.h"

namespace lyceum {

std::int64_t fewest_ranks(const ParallelConfig& parallel) {
  const auto positive = [](int ranks) { return std::clamp<std::int64_t>(ranks, 1, 1 << 20); };
  const std::int64_t stage =
      std::lcm(positive(parallel.tensor), positive(parallel.expert) * positive(parallel.expert_tensor));
  return std::min<std::int64_t>(stage, 1 << 30) * positive(parallel.pipeline);
}

int expert_hosts(const ParallelConfig& parallel) {
  const std::int64_t ranks = std::int64_t{parallel.expert} * parallel.expert_tensor, host = parallel.host_ranks;
  const bool full = host > parallel.expert_tensor && parallel.expert_tensor > 0 && host % parallel.expert_tensor == 0 &&
                    ranks > host && ranks % host == 0;
  return full && parallel.dispatch != DispatchKind::direct ? static_cast<int>(ranks / host) : 1;
}

void declare_keys(ConfigKeys& keys, ParallelConfig& parallel) {
  const KeySection key(keys, KeyRole::operation);
  key("parallel.pipeline", &parallel.pipeline, {.low = 1}, "pipeline stages",
      {.other_names = {"pp", "pipeline_parallel_size", "pipeline_model_parallel_size"}});
  key("parallel.tensor", &parallel.tensor, {.low = 1}, "ranks that each dense matrix is split over",
      {.other_names = {"tp", "tensor_parallel_size", "tensor_model_parallel_size"}});
  key("parallel.expert", &parallel.expert, {.low = 1}, "ranks among which a block's experts are divided",
      {.other_names = {"ep", "expert_parallel_size", "expert_model_parallel_size"}});
  key("parallel.expert_tensor", &parallel.expert_tensor, {.low = 1}, "ranks that each expert matrix is split over",
      {.other_names = {"expert_tensor_parallel_size"}});
  key("parallel.zero", &parallel.zero, {.low = 0, .high = 3},
      "ZeRO stage: data ranks shard 1 the optimizer state, 2 also gradients, 3 also weights",
      {.other_names = {"zero_stage", "zero_optimization"}});
  key("parallel.schedule", &parallel.schedule, "pipeline schedule");
  key("parallel.virtual_stages", &parallel.virtual_stages, {.low = 1}, "stages per pipeline rank",
      {.other_names = {"num_virtual_stages_per_pipeline_rank"}});
  key("parallel.sequence", &parallel.sequence, {}, "sequence parallelism over the tensor ranks",
      {.other_names = {"sequence_parallel"}});
  key("parallel.placement", &parallel.placement,
      "experts on ranks: consecutive, wide paired with narrow, or balanced by FLOPs");
  key("parallel.replace_every", &parallel.replace_every, {.low = 0},
      "steps between decisions to move experts to other ranks by their measured FLOPs; 0: they stay");
  key("parallel.replace_gain", &parallel.replace_gain, {.low = 0, .high = 1, .high_open = true},
      "experts of a block move if its busiest rank then has less FLOPs by more than this share");
  key("parallel.replicas", &parallel.replicas, {.low = 0},
      "spare slots per expert rank and block for replicas of the busiest experts of each micro-batch; 0: none");
  key("parallel.dispatch", &parallel.dispatch,
      "how tokens reach experts' ranks: directly, or once to each host and from there; auto: hierarchical on several "
      "hosts");
  key("parallel.host_ranks", &parallel.host_ranks, {.low = 0}, "ranks per host, for parallel.dispatch; 0: as started");
  key("parallel.overlap", &parallel.overlap,
      "computed while tokens travel to experts and back: nothing, the shared experts, or also another micro-batch");
  key("parallel.expert_exchange", &parallel.expert_exchange,
      "rows that ranks send each other for experts in training: as many as counted, or as many as moe.capacity_factor "
      "and the tokens allow, so that the host does not wait for counts");
  key("parallel.transport", &parallel.transport,
      "between GPUs: nccl, or staged: MPI through host memory; auto: nccl unless ranks share a GPU");
  key("parallel.nccl_order", &parallel.nccl_order,
      "NCCL operations of different groups on a GPU: at the same time, or one after another; no effect without NCCL");
  key("parallel.nccl_channels", &parallel.nccl_channels, {.low = 0, .high = 32},
      "most channels, and thread blocks, of each NCCL communicator, which bounds its memory and leaves it "
      "multiprocessors; 0: NCCL chooses; no effect without NCCL");
  key("parallel.checksums", &parallel.checksums, {}, "add a checksum to tensor messages that are sent by MPI");
}

void check_placement(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  if (config.parallel.placement != PlacementKind::pairs || moe.experts <= 0) return;
  if (!moe.expert_sizes.empty() && std::ssize(moe.expert_sizes) != moe.experts) return;  // reported by check_moe()
  const auto check = [&](const char* key, std::int64_t parts) {
    if (parts < 1) return;
    for (const ExpertNumber& number : expert_numbers(config)) {
      std::vector<std::int64_t> widths = moe.expert_sizes;
      widths.resize(static_cast<std::size_t>(number.experts), moe.expert_hidden);
      const std::string problem = pairs_problem(widths, static_cast<int>(parts));
      findings.unless(problem.empty(),
                      "parallel.placement = pairs with {} = {}: {}; change one, or set parallel.placement = cost", key,
                      parts, problem);
    }
  };
  check("parallel.expert", config.parallel.expert);
  const std::int64_t groups = config.balance.device_groups;
  if (groups != config.parallel.expert) check("balance.device_groups", groups);
}

void check_replacement(Findings& findings, const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t every = parallel.replace_every;
  if (every <= 0) return;
  findings.unless(parallel.expert > 1,
                  "parallel.replace_every = {} with parallel.expert = {}: experts cannot move without other ranks: set "
                  "parallel.replace_every = 0, or parallel.expert",
                  every, parallel.expert);
  const bool trains_all = config.optim.train_only.empty() && config.optim.lora_rank == 0;
  findings.unless(trains_all,
                  "parallel.replace_every = {} with {}: only experts that are trained as a whole can move: set "
                  "parallel.replace_every = 0",
                  every, config.optim.lora_rank > 0 ? "optim.lora_rank" : "optim.train_only");
  // Experts of different groups do not change places, as a token's groups bound the ranks that it is sent to.
  findings.unless(config.moe.group_limit == 0 || config.balance.device_groups % parallel.expert != 0,
                  "parallel.replace_every = {} with moe.group_limit = {} and balance.device_groups = {}: experts move "
                  "within a group only, and each is on one of parallel.expert = {} ranks: set parallel.replace_every = "
                  "0",
                  every, config.moe.group_limit, config.balance.device_groups, parallel.expert);
}

int most_replicas(const Config& config, int ranks) {
  const std::int64_t experts = std::clamp<std::int64_t>(config.moe.experts, 0, 1 << 20);
  return static_cast<int>(experts - experts / std::max(1, ranks));
}

void check_replicas(Findings& findings, const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const int replicas = parallel.replicas;
  if (replicas <= 0) return;
  findings.unless(parallel.expert > 1,
                  "parallel.replicas = {} with parallel.expert = {}: experts have replicas on other expert ranks only: "
                  "set parallel.replicas = 0, or parallel.expert",
                  replicas, parallel.expert);
  const int others = most_replicas(config, parallel.expert);
  findings.unless(
      parallel.expert <= 1 || config.moe.experts == 0 || replicas <= others,
      "parallel.replicas = {} with moe.experts = {} on parallel.expert = {} ranks: other ranks have at most "
      "{} experts: set parallel.replicas to at most {}",
      replicas, config.moe.experts, parallel.expert, others, others);
  const bool trains_all = config.optim.train_only.empty() && config.optim.lora_rank == 0;
  findings.unless(trains_all,
                  "parallel.replicas = {} with {}: only experts that are trained as a whole can have replicas: set "
                  "parallel.replicas = 0",
                  replicas, config.optim.lora_rank > 0 ? "optim.lora_rank" : "optim.train_only");
  findings.unless(
      parallel.expert_exchange == ExpertExchange::counted,
      "parallel.replicas = {} with parallel.expert_exchange = bounded: replicas depend on the counts of all "
      "ranks: set parallel.expert_exchange = counted, or parallel.replicas = 0",
      replicas);
}

}  // namespace lyceum
