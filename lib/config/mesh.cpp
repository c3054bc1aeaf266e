#include "config/mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/config.h"
#include "config/findings.h"
#include "config/mesh_advice.h"
#include "io/text/table.h"

namespace lyceum {
namespace {

std::string ranks_do(int world) { return world == 1 ? "1 rank does" : fmt::format("{} ranks do", world); }

/// Checks that groups of ranks form the mesh.
void check_ranks(Findings& findings, const Config& config, int world) {
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t stages = std::max(parallel.pipeline, 1);
  const std::int64_t expert_ranks = std::int64_t{parallel.expert} * parallel.expert_tensor;
  const auto advice = [&](bool fine, const char* key, int ParallelConfig::*member) {
    return findings.advice(fine, [&] { return ranks_advice(config, world, key, member); });
  };
  const bool stages_fit = world % stages == 0;
  const bool split = data_ranks(parallel, world) > 0 || parallel.pipeline < 1 || parallel.tensor < 1;
  findings.unless(split, "{} not split into parallel.pipeline = {} times parallel.tensor = {}{}", ranks_do(world),
                  parallel.pipeline, parallel.tensor,
                  stages_fit ? advice(split, "parallel.tensor", &ParallelConfig::tensor)
                             : advice(split, "parallel.pipeline", &ParallelConfig::pipeline));
  const bool shared = !stages_fit || divides(expert_ranks, world / stages);
  findings.unless(shared, "parallel.expert = {} times parallel.expert_tensor = {} does not divide the {} of a stage{}",
                  parallel.expert, parallel.expert_tensor, count_text(world / stages, "rank"),
                  advice(shared, "parallel.expert", &ParallelConfig::expert));
  findings.unless(
      parallel.dispatch != DispatchKind::hierarchical || parallel.host_ranks == 0 || expert_hosts(parallel) > 1,
      "parallel.dispatch = hierarchical: {} of parallel.expert times parallel.expert_tensor do not fill several hosts "
      "of parallel.host_ranks = {} with more than one expert rank on each: set parallel.dispatch = auto",
      count_text(expert_ranks, "rank"), parallel.host_ranks);
}

/// Checks that data ranks can divide the batch into micro-batches.
void check_batch(Findings& findings, const Config& config, int world) {
  const BatchConfig& batch = config.batch;
  const std::int64_t data = data_ranks(config.parallel, world);
  if (data == 0) return;
  const bool divided = divides(data, batch.global);
  findings.unless(divided, "batch.global = {} cannot be divided among {} data-parallel ranks{}", batch.global, data,
                  findings.advice(divided, [&] { return batch_advice(config, world); }));
  const bool in_passes = !divided || divides(batch.micro, batch.global / data);
  findings.unless(in_passes, "batch.micro = {} does not divide the {} sequences per rank of batch.global = {}{}",
                  batch.micro, batch.global / data, batch.global,
                  findings.advice(in_passes, [&] { return micro_batch_advice(config, world); }));
}

/// Checks that every stage has a block, and that the schedule is possible.
void check_pipeline(Findings& findings, const Config& config, int world) {
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t pipeline = parallel.pipeline, chunks = parallel.virtual_stages;
  findings.unless(pipeline <= 0 || chunks <= 0 || config.model.layers <= 0 || pipeline * chunks <= config.model.layers,
                  "parallel.pipeline = {} times parallel.virtual_stages = {} is more than model.layers = {}: some "
                  "stages would have no block",
                  pipeline, chunks, config.model.layers);
  if (parallel.schedule != ScheduleKind::interleaved) {
    findings.unless(chunks <= 1,
                    "parallel.virtual_stages = {} with parallel.schedule = {}: set {}parallel.virtual_stages = 1",
                    chunks, name_of(parallel.schedule), pipeline > 1 ? "parallel.schedule = interleaved, or " : "");
    return;
  }
  findings.unless(pipeline >= 2 && chunks >= 2,
                  "parallel.schedule = interleaved with parallel.pipeline = {} and parallel.virtual_stages = {}: both "
                  "must be 2 or more, or set parallel.schedule = 1f1b and parallel.virtual_stages = 1",
                  pipeline, chunks);
  const std::optional<RankBatch> batch = rank_batch(config, world);
  if (!batch) return;
  const auto [share, micro] = *batch;
  findings.unless(micro == 0 || share % micro != 0 || divides(pipeline, share / micro),
                  "parallel.schedule = interleaved takes micro-batches in groups of parallel.pipeline = {}, which does "
                  "not divide the {} of a step: change batch.global or batch.micro",
                  pipeline, micro > 0 ? share / micro : 0);
}

/// Checks that parallel.overlap = batches is possible: without a pipeline, with the schedule 1f1b, at most ZeRO 2, and
/// at least two micro-batches per step.
void check_overlap(Findings& findings, const Config& config, int world) {
  const ParallelConfig& parallel = config.parallel;
  if (!overlaps_batches(parallel)) return;
  findings.unless(parallel.pipeline <= 1,
                  "parallel.overlap = batches with parallel.pipeline = {}, which has its own schedule of "
                  "micro-batches: set parallel.overlap = shared, or parallel.pipeline = 1",
                  parallel.pipeline);
  findings.unless(parallel.schedule == ScheduleKind::one_forward_one_backward || parallel.pipeline > 1,
                  "parallel.overlap = batches with parallel.schedule = {}: set parallel.schedule = 1f1b",
                  name_of(parallel.schedule));
  findings.unless(parallel.zero <= 2,
                  "parallel.overlap = batches with parallel.zero = {}, which has the weights of only two layers on a "
                  "rank at a time: set parallel.zero = 2, or parallel.overlap = shared",
                  parallel.zero);
  findings.unless(config.optim.lora_rank == 0,
                  "parallel.overlap = batches with optim.lora_rank = {}: adapted weights of only one layer are on a "
                  "rank at a time: set parallel.overlap = shared",
                  config.optim.lora_rank);
  const std::optional<RankBatch> batch = rank_batch(config, world);
  if (!batch) return;
  const auto [share, micro] = *batch;
  findings.unless(share != micro,
                  "parallel.overlap = batches with one micro-batch of {} per step, which leaves none to overlap it "
                  "with: set a smaller batch.micro, or parallel.overlap = shared",
                  count_text(micro, "sequence"));
}

/// Checks that every rank of a tensor group gets an equal share of the heads and a part of every width.
void check_tensor(Findings& findings, const Config& config) {
  const std::int64_t tensor = config.parallel.tensor, expert_tensor = config.parallel.expert_tensor;
  const ModelConfig& model = config.model;
  const MoeConfig& moe = config.moe;
  findings.unless(divides(tensor, model.heads), "parallel.tensor = {} does not divide model.heads = {}", tensor,
                  model.heads);
  findings.unless(model.kv_heads == 0 || model.kv_heads == model.heads || divides(tensor, model.kv_heads),
                  "parallel.tensor = {} does not divide model.kv_heads = {}", tensor, model.kv_heads);
  const auto check_width = [&](const char* axis, std::int64_t ranks, const char* key, std::int64_t width) {
    findings.unless(width <= 0 || ranks <= width, "{} = {} is more than {} = {}: some ranks would hold no part of it",
                    axis, ranks, key, width);
  };
  check_width("parallel.tensor", tensor, "model.vocab", model.vocab);
  check_width("parallel.tensor", tensor, "model.ffn_hidden", model.ffn_hidden);
  if (moe.shared_experts > 0 && moe.expert_hidden > 0) {
    check_width("parallel.tensor", tensor, "moe.shared_experts times moe.expert_hidden",
                moe.shared_experts * moe.expert_hidden);
  }
  if (moe.experts <= 0) {
    findings.unless(expert_tensor <= 1,
                    "parallel.expert_tensor = {} with no experts to split: set parallel.expert_tensor = 1, or "
                    "moe.experts",
                    expert_tensor);
  } else if (moe.expert_sizes.empty()) {
    check_width("parallel.expert_tensor", expert_tensor, "moe.expert_hidden", moe.expert_hidden);
  } else {
    check_width("parallel.expert_tensor", expert_tensor, "the smallest of moe.expert_sizes",
                *std::ranges::min_element(moe.expert_sizes));
  }
}

}  // namespace

std::int64_t data_ranks(const ParallelConfig& parallel, int world) {
  const std::int64_t model_ranks = std::int64_t{parallel.pipeline} * parallel.tensor;
  return model_ranks > 0 && world % model_ranks == 0 ? world / model_ranks : 0;
}

std::optional<RankBatch> rank_batch(const Config& config, int world) {
  const std::int64_t data = data_ranks(config.parallel, world);
  if (data == 0 || config.batch.global % data != 0) return std::nullopt;
  const std::int64_t share = config.batch.global / data;
  return RankBatch{share, config.batch.micro > 0 ? config.batch.micro : share};
}

void check_mesh(Findings& findings, const Config& config, int world) {
  check_ranks(findings, config, world);
  check_batch(findings, config, world);
  check_pipeline(findings, config, world);
  check_overlap(findings, config, world);
  check_tensor(findings, config);
}

bool fits_ranks(const Config& config, int world) {
  Findings findings(false);
  check_ranks(findings, config, world);
  check_batch(findings, config, world);
  check_pipeline(findings, config, world);
  check_overlap(findings, config, world);
  const std::int64_t expert = config.parallel.expert;
  for (const ExpertNumber& layer : expert_numbers(config)) {
    findings.unless(expert <= (config.moe.experts > 0 ? layer.experts : 1), "a rank without experts");
  }
  findings.unless(divides(config.parallel.tensor, config.model.heads), "heads that are not divided");
  return findings.take().empty();
}

void derive_micro_batch(Config& config, int world) {
  const std::optional<RankBatch> batch = rank_batch(config, world);
  if (batch && config.batch.micro == 0) config.batch.micro = batch->share;
}

}  // namespace lyceum
