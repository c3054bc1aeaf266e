#include <nlohmann/json.hpp>

#include <algorithm>

#include "io/text/json.h"
#include "model/counts.h"
#include "plan/checkpoint_list.h"
#include "plan/memory.h"
#include "plan/nccl_memory.h"
#include "plan/report.h"

namespace lyceum {

namespace {

using Json = nlohmann::ordered_json;

/// Converts bytes, which are whole numbers in a plan, to a JSON integer.
Json whole(double bytes) { return static_cast<std::int64_t>(std::min(bytes, 9e18)); }

Json memory_json(const RankMemory& memory) {
  Json json{{"weights", whole(memory.weights)},     {"gradients", whole(memory.gradients)},
            {"optimizer", whole(memory.optimizer)}, {"activations", whole(memory.activations)},
            {"buffers", whole(memory.buffers)},     {"total", whole(memory.total())}};
  if (memory.nccl > 0) json["nccl"] = whole(memory.nccl);
  if (memory.process > 0) {
    json["process"] = whole(memory.process);
    json["resident"] = whole(memory.resident());
  }
  return json;
}

Json mesh_json(const MeshPlan& plan) {
  const ParallelConfig& parallel = plan.config.parallel;
  const MeshShape shape = mesh_shape(parallel);
  return {{"world", plan.world},
          {"pipeline", shape.pipeline},
          {"data", shape.data(plan.world)},
          {"tensor", shape.tensor},
          {"expert_data", shape.expert_data(plan.world)},
          {"expert", shape.expert},
          {"expert_tensor", shape.expert_tensor},
          {"zero", parallel.zero},
          {"schedule", name_of(parallel.schedule)},
          {"virtual_stages", parallel.virtual_stages},
          {"sequence", parallel.sequence},
          {"micro", plan.config.batch.micro},
          {"recompute", name_of(plan.config.model.recompute)}};
}

Json time_json(const StepTime& time) {
  return {{"total", time.total()}, {"compute", time.compute},      {"transfers", time.transfers},
          {"bubble", time.bubble}, {"copies", time.synchronising}, {"optimizer", time.optimizer},
          {"muon", time.muon}};
}

/// Adds the bytes of each group, for the rank that sends most on that group, in total and by operation.
void add_traffic(const MeshPlan& plan, Json& json) {
  Json groups = Json::object(), operations = Json::object();
  for (std::size_t a = 0; a < axis_names.size(); ++a) {
    const auto axis = static_cast<Axis>(a);
    const RankPlan& rank =
        *std::ranges::max_element(plan.ranks, {}, [axis](const RankPlan& one) { return one.traffic().bytes(axis); });
    const Traffic traffic = rank.traffic();
    groups[std::string(axis_names[a])] = whole(traffic.bytes(axis));
    for (std::size_t t = 0; t < transfer_names.size(); ++t) {
      const double bytes = traffic.of(axis, static_cast<Transfer>(t)).bytes;
      if (bytes > 0) operations[std::string(axis_names[a])][std::string(transfer_names[t])] = whole(bytes);
    }
  }
  json["communication_bytes_per_step"] = groups;
  json["communication_by_operation"] = operations;
}

Json model_json(const Config& config) {
  const ModelCounts counts = count_model(config);
  const CheckpointList list = checkpoint_list(config);
  return {{"parameters",
           {{"total", counts.parameters},
            {"activated", counts.activated},
            {"experts_total", counts.experts_total},
            {"experts_activated", counts.experts_activated},
            {"modules_total", counts.modules.total},
            {"modules_activated", counts.modules.activated}}},
          {"flops_per_sequence", counts.flops_per_sequence},
          {"causal_flops_per_sequence", counts.causal_flops_per_sequence},
          {"cache_bytes_per_sequence", whole(cache_bytes(config))},
          {"checkpoint_list",
           {{"tensors", list.tensors},
            {"resuming_bytes", whole(list.resuming_bytes)},
            {"saving_bytes", whole(list.saving_bytes)}}}};
}

Json load_json(const LoadComparison& load) {
  Json variants = Json::array();
  for (const LoadVariant& variant : load.variants) {
    Json& own = variants.emplace_back(Json{{"load", variant.even ? "even" : "given"},
                                           {"placement", name_of(variant.placement)},
                                           {"moved", variant.moved},
                                           {"replicas", variant.replicas},
                                           {"planned", variant.planned},
                                           {"busiest_over_mean", variant.imbalance.mean},
                                           {"worst_layer", variant.imbalance.worst},
                                           {"most_rows", variant.most_rows},
                                           {"replica_bytes", whole(variant.replica_bytes)}});
    if (variant.step_seconds) own["step_seconds"] = *variant.step_seconds;
  }
  return {{"source", load.description}, {"expert_ranks", load.expert_ranks}, {"variants", variants}};
}

}  // namespace

std::string json_report(const MeshPlan& plan, const std::optional<Cluster>& cluster, const SearchResult* search,
                        double tokens, const std::vector<std::string>& warnings, std::span<const StagePlan> stages,
                        const LoadComparison* load) {
  Json json = model_json(plan.config);
  json["mesh"] = mesh_json(plan);
  const RankPlan& largest = plan.fullest();
  json["memory_bytes_per_rank"] = memory_json(largest.memory);
  if (const double most = unlimited_nccl_bytes(plan, cluster.has_value()); most > 0) {
    json["memory_bytes_per_rank"]["nccl_at_most"] = whole(most);
  }
  for (const RankPlan& rank : plan.ranks) {
    Json blocks = Json::array();
    for (const Range& stage : rank.stages) blocks.push_back({stage.first, stage.end()});
    json["rows"].push_back({{"rank", rank.rank}, {"blocks", blocks}, {"memory_bytes", memory_json(rank.memory)}});
  }
  add_traffic(plan, json);
  json["pipeline"] = {{"bubble", plan.bubble()},
                      {"bubble_ratio", plan.timeline.bubble_ratio()},
                      {"microbatches", plan.timeline.shape.microbatches}};
  if (plan.time) {
    json["cluster"] = cluster->name;
    json["step_seconds"] = time_json(*plan.time);
    json["tokens_per_second"] = plan.tokens_per_second();
    const Training training(plan, tokens, stages);
    json["training"] = {
        {"tokens", training.tokens}, {"seconds", training.seconds}, {"device_hours", training.device_hours}};
  }
  for (const StagePlan& stage : stages) {
    const BatchConfig& batch = stage.plan.config.batch;
    Json& own = json["stages"].emplace_back(Json{{"first_step", stage.first_step},
                                                 {"last_step", stage.last_step},
                                                 {"global", batch.global},
                                                 {"micro", batch.micro},
                                                 {"seq_len", batch.seq_len},
                                                 {"tokens", stage.tokens()},
                                                 {"memory_bytes", whole(stage.plan.peak_memory())}});
    if (stage.plan.time) own["step_seconds"] = time_json(*stage.plan.time);
  }
  if (search) {
    Json best = Json::array();
    for (const Candidate& candidate : search->best) {
      best.push_back({{"mesh", mesh_json(candidate.plan)},
                      {"step_seconds", time_json(*candidate.plan.time)},
                      {"memory_bytes", whole(candidate.plan.peak_memory())},
                      {"reason", candidate.reason}});
    }
    json["search"] = {{"considered", search->considered}, {"too_large", search->too_large}, {"best", best}};
  }
  if (load) json["load"] = load_json(*load);
  json["warnings"] = warnings;
  return json_text(json, 2) + "\n";
}

}  // namespace lyceum
