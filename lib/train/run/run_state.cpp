#include "train/run/run_state.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "io/text/json.h"

namespace lyceum {

namespace {

using Json = nlohmann::ordered_json;

Json parse(const std::string& text) {
  require_shallow(text);
  return parse_json<Json>(text);
}

/// Returns a JSON object with the id of a mixture. The site is written only for attention: older checkpoints have none.
Json object_of(const MixtureId& id) {
  Json json{{"layer", id.layer}};
  if (id.site == Site::attention) json["site"] = "attention";
  return json;
}

MixtureId id_of(const Json& json) {
  const std::string site = json.value("site", "ffn");
  require_input(site == "ffn" || site == "attention", "the checkpoint's trainer state has the unknown site {}", site);
  return {.layer = Exact(json.at("layer")), .site = site == "ffn" ? Site::ffn : Site::attention};
}

Json json_of(const ReplicaCounts& counts) {
  return {{"replicas", counts.replicas},
          {"tokens", counts.tokens},
          {"kept", counts.kept},
          {"sent", counts.sent},
          {"bytes", counts.bytes}};
}

/// The factor by which the weight of a step's tokens decreases with each later step.
constexpr double load_decay = 0.99;

/// Adds the loads of a step to those of one mixture.
void add_loads(ExpertLoad& load, const RoutingSums& step) {
  load.id = step.id;
  load.tokens.resize(static_cast<std::size_t>(step.experts), 0.0);
  for (std::size_t e = 0; e < load.tokens.size(); ++e) {
    const std::int64_t dropped = step.dropped.empty() ? 0 : step.dropped[e];  // no expert computes these
    load.tokens[e] = load.tokens[e] * load_decay + static_cast<double>(step.counts[e] - dropped);
  }
}

std::vector<ExpertLoad> read_load(const Json& state) {
  std::vector<ExpertLoad> load;
  for (const Json& layer : state.value("expert_load", Json::array())) {  // older checkpoints have none
    load.push_back({.id = id_of(layer), .tokens = layer.at("tokens")});
    const std::vector<double>& tokens = load.back().tokens;
    require_input(std::ranges::all_of(tokens, [](double n) { return n >= 0 && std::isfinite(n); }),
                  "the checkpoint's expert loads of layer {} are not numbers of tokens", label_of(load.back().id));
  }
  return load;
}

std::vector<IdleExperts> read_idle(const Json& state, const std::vector<RoutingSums>& expected) {
  std::vector<IdleExperts> idle;
  for (const Json& layer : state.value("idle_experts", Json::array())) {  // older checkpoints have none
    idle.push_back({.id = id_of(layer), .steps = Exact(layer.at("steps"))});
  }
  const bool fits = std::ranges::equal(idle, expected, [](const IdleExperts& a, const RoutingSums& b) {
    return a.id == b.id && std::ssize(a.steps) == b.experts &&
           std::ranges::all_of(a.steps, [](std::int64_t n) { return n >= 0; });
  });
  return fits ? idle : std::vector<IdleExperts>{};  // counts of other mixtures are dropped, and start from 0
}

/// Returns a number of steps, samples or tokens. Throws a bad_input Error unless it is an integer from 0 to 2^53.
std::int64_t count_of(const Json& state, const char* key) {
  constexpr auto most = static_cast<double>(std::int64_t{1} << 53);
  const Json& value = state.at(key);
  const double count = value;
  require_input(value.is_number_integer() && count >= 0 && count <= most,
                "the checkpoint's trainer state has {} = {}, which is not a count", key, json_text(value));
  return value;
}

/// Returns count_of(), or 0 for a key that older checkpoints do not have.
std::int64_t count_or_zero(const Json& state, const char* key) {
  return state.contains(key) ? count_of(state, key) : 0;
}

Json json_of(const std::deque<RoutingRecord>& records) {
  Json list = Json::array();
  for (const RoutingRecord& record : records) {
    Json layers = Json::array();
    for (const LayerRouting& layer : record.layers) {
      layers.emplace_back(object_of(layer.id))
          .update({{"top_k", layer.top_k},
                   {"experts", layer.experts},
                   {"counts", layer.counts},
                   {"mean_probability", layer.mean_probability},
                   {"mean_entropy", layer.mean_entropy},
                   {"dropped", layer.dropped},
                   {"step_max_vio_mean", layer.steps.max_vio_mean},
                   {"step_max_vio_max", layer.steps.max_vio_max},
                   {"step_idle_mean", layer.steps.idle_mean},
                   {"step_idle_max", layer.steps.idle_max}});
      if (!layer.replicas.empty()) layers.back()["replicas"] = json_of(layer.replicas);
    }
    list.push_back({{"step", record.step}, {"layers", std::move(layers)}});
  }
  return list;
}

/// Returns the numbers of replicas. Throws a bad_input Error unless they are counts for each of `experts` experts.
ReplicaCounts read_replicas(const Json& json, std::int64_t experts) {
  ReplicaCounts counts{.replicas = Exact(json.at("replicas")),
                       .tokens = Exact(json.at("tokens")),
                       .kept = count_of(json, "kept"),
                       .sent = count_of(json, "sent"),
                       .bytes = count_of(json, "bytes")};
  constexpr std::int64_t most = std::int64_t{1} << 53;
  for (const std::vector<std::int64_t>* const each : {&counts.replicas, &counts.tokens}) {
    require_input(std::ssize(*each) == experts &&
                      std::ranges::all_of(*each, [](std::int64_t count) { return count >= 0 && count <= most; }),
                  "the checkpoint's trainer state has replicas that are not counts of {} experts", experts);
  }
  return counts;
}

/// Returns the replicas since the last record; none for a checkpoint without parallel.replicas.
std::vector<ReplicaSums> read_replicas(const Json& state, const std::vector<RoutingSums>& expected) {
  std::vector<ReplicaSums> replicas;
  for (const Json& layer : state.value("replicas", Json::array())) {
    const MixtureId id = id_of(layer);
    const auto mixture = std::ranges::find(expected, id, &RoutingSums::id);
    require_input(mixture != expected.end(),
                  "the checkpoint's trainer state has replicas of layer {}, which has no experts", label_of(id));
    replicas.push_back({id, read_replicas(layer, mixture->experts)});
  }
  return replicas;
}

/// Returns the dropped choices; empty for an older checkpoint.
std::vector<std::int64_t> read_dropped(const Json& layer) {
  return layer.contains("dropped") ? exact_value<std::vector<std::int64_t>>(layer.at("dropped"))
                                   : std::vector<std::int64_t>();
}

/// Returns a number; NaN if the key is missing, as in an older checkpoint, or null, which is how JSON stores NaN.
double number_or_nan(const Json& layer, const char* key) {
  const auto found = layer.find(key);
  return found == layer.end() || found->is_null() ? std::numeric_limits<double>::quiet_NaN() : found->get<double>();
}

/// Returns the sums of each step's balance. They are NaN for an older checkpoint, and so is then the next record.
StepBalanceSums read_steps(const Json& layer) {
  return {.steps = layer.contains("steps") ? count_of(layer, "steps") : 1,
          .max_vio_sum = number_or_nan(layer, "step_max_vio_sum"),
          .max_vio_max = number_or_nan(layer, "step_max_vio_max"),
          .idle_sum = number_or_nan(layer, "step_idle_sum"),
          .idle_max = number_or_nan(layer, "step_idle_max")};
}

std::deque<RoutingRecord> read_unwritten_routing(const Json& state) {
  std::deque<RoutingRecord> records;
  for (const Json& record : state.value("unwritten_routing", Json::array())) {
    RoutingRecord& read = records.emplace_back(count_of(record, "step"), std::vector<LayerRouting>());
    for (const Json& layer : record.at("layers")) {
      read.layers.push_back({.id = id_of(layer),
                             .top_k = Exact(layer.at("top_k")),
                             .experts = Exact(layer.at("experts")),
                             .counts = Exact(layer.at("counts")),
                             .mean_probability = layer.at("mean_probability"),
                             .mean_entropy = static_cast<float>(number_or_nan(layer, "mean_entropy")),
                             .dropped = read_dropped(layer),
                             .steps = {.max_vio_mean = static_cast<float>(number_or_nan(layer, "step_max_vio_mean")),
                                       .max_vio_max = static_cast<float>(number_or_nan(layer, "step_max_vio_max")),
                                       .idle_mean = static_cast<float>(number_or_nan(layer, "step_idle_mean")),
                                       .idle_max = static_cast<float>(number_or_nan(layer, "step_idle_max"))}});
      LayerRouting& last = read.layers.back();
      if (layer.contains("replicas")) last.replicas = read_replicas(layer.at("replicas"), last.experts);
    }
  }
  return records;
}

Json json_of(const DataProgress& progress) {
  Json sources = Json::array();
  for (const SourceProgress& source : progress.sources) {
    sources.push_back({{"prefix", source.prefix}, {"samples", source.samples}, {"samples_per_pass", source.per_pass}});
    if (!source.fingerprint.empty()) sources.back()["fingerprint"] = source.fingerprint;
    if (source.order >= 0) sources.back()["order"] = source.order;
  }
  return {{"samples", progress.samples}, {"tokens", progress.tokens}, {"sources", std::move(sources)}};
}

/// Returns the beginning of the present loader; that of the run for an older checkpoint.
DataProgress read_data_begin(const Json& state) {
  if (!state.contains("data_begin")) return {};
  const Json& json = state.at("data_begin");
  DataProgress progress{.samples = count_of(json, "samples"), .tokens = count_of(json, "tokens"), .sources = {}};
  for (const Json& source : json.at("sources")) {
    progress.sources.push_back({.prefix = source.at("prefix"),
                                .samples = count_of(source, "samples"),
                                .per_pass = count_of(source, "samples_per_pass"),
                                .fingerprint = source.value("fingerprint", ""),
                                .order = source.contains("order") ? count_of(source, "order") : -1});
    require_input(progress.sources.back().per_pass > 0,
                  "the checkpoint's trainer state has a source of data without samples");
  }
  return progress;
}

Soundness read_soundness(const Json& state) {
  if (!state.contains("soundness")) return {};  // of an older checkpoint
  const Json& json = state.at("soundness");
  return {.steps = count_of(json, "steps"),
          .left_out = count_of(json, "left_out"),
          .smoothed = json.at("smoothed_loss"),
          .lowest = json.at("lowest_loss")};
}

RecentSteps read_recent(const Json& state) {
  if (!state.contains("recent_losses")) return {};  // of an older checkpoint, or without optim.skip_above
  const RecentSteps recent{.losses = state.at("recent_losses"), .norms = state.at("recent_norms")};
  const auto all_finite = [](const auto& values) {
    return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
  };
  require_input(recent.losses.size() == recent.norms.size() && all_finite(recent.losses) && all_finite(recent.norms),
                "the checkpoint's trainer state has recent_losses and recent_norms that are not those of equally many "
                "steps");
  return recent;
}

/// Returns the number of ranks of a placement. `owner` [experts]: rank of each expert. Returns 0 if the ranks are not
/// 0, 1, 2, … without gaps.
int placement_ranks(const std::vector<int>& owner) {
  std::vector<int> sorted = owner;
  std::ranges::sort(sorted);
  int ranks = 0;
  for (const int rank : sorted) {
    if (rank < 0 || (rank != ranks && rank != ranks - 1)) return 0;
    ranks = rank + 1;
  }
  return ranks;
}

/// Sets the order of the experts on their ranks. Throws a bad_input Error unless `order` [experts] contains every
/// expert once, sorted by rank.
void set_order(Placement& placement, std::vector<std::int32_t> order) {
  std::vector<std::int32_t> experts = order;
  std::ranges::sort(experts);
  const auto rank_of = [&](std::int32_t expert) { return placement.owner[static_cast<std::size_t>(expert)]; };
  std::vector<std::int32_t> all(placement.owner.size());
  std::iota(all.begin(), all.end(), 0);
  require_input(experts == all && std::ranges::is_sorted(order, {}, rank_of),
                "the checkpoint's order of experts on their ranks is not one of the {} experts", placement.experts());
  placement.order = std::move(order);
}

[[noreturn]] void fail_unreadable(const nlohmann::json::exception& error) {
  fail(ExitCode::bad_input, "the checkpoint's trainer state cannot be read: {}", error.what());
}

/// True if routing sums, or records, belong to the mixtures of `expected` and have valid counts. `means`: the member
/// with one mean per expert, which has another name in sums than in records.
template <class Layer, class Means>
bool same_layers(const std::vector<Layer>& layers, Means Layer::*means, const std::vector<RoutingSums>& expected) {
  constexpr std::int64_t most = std::int64_t{1} << 53;
  return std::ranges::equal(layers, expected, [&](const Layer& x, const RoutingSums& y) {
    return x.id == y.id && x.top_k == y.top_k && x.experts == y.experts && x.counts.size() == y.counts.size() &&
           (x.*means).size() == y.probability.size() &&
           std::ranges::all_of(x.counts, [](std::int64_t count) { return count >= 0 && count <= most; }) &&
           (x.dropped.empty() || std::ranges::equal(x.dropped, x.counts, [](std::int64_t dropped, std::int64_t count) {
              return dropped >= 0 && dropped <= count;
            }));
  });
}

}  // namespace

void RunState::add_load(const std::vector<RoutingSums>& loads) {
  load.resize(loads.size());
  for (std::size_t layer = 0; layer < loads.size(); ++layer) add_loads(load[layer], loads[layer]);
}

void RunState::add_routing(const std::vector<RoutingSums>& own, const std::vector<RoutingSums>& loads,
                           std::int64_t tokens, const std::vector<ReplicaSums>& own_sums) {
  if (loads.empty()) return;
  add(own_replicas, own_sums);
  routing_tokens += tokens;
  std::vector<RoutingSums> rounded = own;
  round_to_exact_sums(rounded);
  add(own_routing, rounded);
  routing_steps.resize(loads.size());
  for (std::size_t i = 0; i < loads.size(); ++i) routing_steps[i].add(loads[i]);
}

void RunState::sum_routing(const Config& config, const Mesh& mesh) {
  if (config.routing.every == 0) return clear_routing();  // a checkpoint may have sums that no record will take
  if (routing_steps.empty()) return;                      // on all ranks
  add(routing, sum_routing_over_ranks(config, mesh, own_routing));
  own_routing.clear();
  if (config.parallel.replicas == 0) return;
  add(replicas, sum_replica_counts_over_ranks(config, mesh, own_replicas));
  own_replicas.clear();
}

std::string RunState::problem() const {
  const std::string problem = soundness.problem();
  if (!problem.empty() || outliers_in_a_row < Soundness::window) return problem;
  return fmt::format("the last {} steps were skipped by optim.skip_above", outliers_in_a_row);
}

void RunState::forget_losses() {
  soundness = {};
  recent = {};
}

void RunState::clear_routing() {
  own_routing.clear();
  routing.clear();
  routing_steps.clear();
  routing_tokens = 0;
  replicas.clear();
  own_replicas.clear();
}

std::string RunState::text() const {
  Json layers = Json::array();
  for (std::size_t i = 0; i < routing.size(); ++i) {
    const RoutingSums& sums = routing[i];
    const StepBalanceSums& steps = routing_steps.at(i);
    layers.emplace_back(object_of(sums.id))
        .update({{"top_k", sums.top_k},
                 {"experts", sums.experts},
                 {"counts", sums.counts},
                 {"probability", sums.probability},
                 {"entropy", sums.entropy},
                 {"dropped", sums.dropped},
                 {"steps", steps.steps},
                 {"step_max_vio_sum", steps.max_vio_sum},
                 {"step_max_vio_max", steps.max_vio_max},
                 {"step_idle_sum", steps.idle_sum},
                 {"step_idle_max", steps.idle_max}});
  }
  Json loads = Json::array();
  for (const ExpertLoad& layer : load) loads.emplace_back(object_of(layer.id))["tokens"] = layer.tokens;
  Json idles = Json::array();
  for (const IdleExperts& layer : idle) idles.emplace_back(object_of(layer.id))["steps"] = layer.steps;
  Json placements = Json::array();
  for (const MixturePlacement& layer : placement) {
    Json& json = placements.emplace_back(object_of(layer.id));
    json["rank_of_expert"] = layer.ranks.owner;
    if (!std::ranges::is_sorted(layer.ranks.order, {}, [&](std::int32_t expert) {
          return std::pair(layer.ranks.owner[static_cast<std::size_t>(expert)], expert);
        })) {
      json["order"] = layer.ranks.order;
    }
  }
  Json files = Json::array();
  for (const DataIdentity& each : data) {
    files.push_back({{"key", each.key}, {"prefix", each.prefix}, {"fingerprint", each.fingerprint}});
    if (each.order >= 0) files.back()["order"] = each.order;
  }
  Json state{{"updates", updates},
             {"samples", samples},
             {"schedule_steps", schedule_steps},
             {"skipped", skipped},
             {"skipped_in_a_row", skipped_in_a_row},
             {"outliers", outliers},
             {"outliers_in_a_row", outliers_in_a_row},
             {"rollbacks", rollbacks},
             {"routing_tokens", routing_tokens},
             {"routing", layers},
             {"unwritten_routing", json_of(unwritten_routing)},
             {"soundness",
              {{"steps", soundness.steps},
               {"left_out", soundness.left_out},
               {"smoothed_loss", soundness.smoothed},
               {"lowest_loss", soundness.lowest}}},
             {"expert_load", loads},
             {"idle_experts", idles},
             {"placement", placements},
             {"data", files}};
  if (data_begin != DataProgress{}) state["data_begin"] = json_of(data_begin);
  for (const ReplicaSums& sums : replicas) {
    Json json = object_of(sums.id);
    json.update(json_of(sums.counts));
    state["replicas"].push_back(std::move(json));
  }
  if (!recent.losses.empty()) {
    state["recent_losses"] = recent.losses;
    state["recent_norms"] = recent.norms;
  }
  return json_text(state);
}

std::vector<ExpertLoad> RunState::load_of(const std::string& text) {
  try {
    return read_load(parse(text));
  } catch (const nlohmann::json::exception& error) {
    fail_unreadable(error);
  }
}

std::vector<MixturePlacement> RunState::placement_of(const std::string& text) {
  try {
    std::vector<MixturePlacement> placement;
    const Json state = parse(text);
    for (const Json& layer : state.value("placement", Json::array())) {
      const std::vector<int> owner = Exact(layer.at("rank_of_expert"));
      const int ranks = placement_ranks(owner);
      require_input(ranks > 0 && (placement.empty() || placement[0].ranks.ranks() == ranks),
                    "the checkpoint's placement of the experts of layer {} fits no mesh", json_text(layer.at("layer")));
      placement.push_back({id_of(layer), Placement::of_owners(owner, ranks)});
      if (layer.contains("order")) set_order(placement.back().ranks, Exact(layer.at("order")));
    }
    return placement;
  } catch (const nlohmann::json::exception& error) {
    fail_unreadable(error);
  }
}

std::vector<DataIdentity> RunState::data_of(const std::string& text) {
  try {
    std::vector<DataIdentity> data;
    const Json state = parse(text);
    for (const Json& files : state.value("data", Json::array())) {
      data.push_back({.key = files.at("key"),
                      .prefix = files.at("prefix"),
                      .fingerprint = files.at("fingerprint"),
                      .order = files.contains("order") ? count_of(files, "order") : -1});
    }
    return data;
  } catch (const nlohmann::json::exception& error) {
    fail_unreadable(error);
  }
}

DataProgress RunState::data_begin_of(const std::string& text) {
  try {
    return read_data_begin(parse(text));
  } catch (const nlohmann::json::exception& error) {
    fail_unreadable(error);
  }
}

std::int64_t RunState::schedule_of(const std::string& text) {
  try {
    const Json state = parse(text);
    return count_or_zero(state, "schedule_steps");
  } catch (const nlohmann::json::exception& error) {
    fail_unreadable(error);
  }
}

void RunState::restore(const std::string& text, const std::vector<RoutingSums>& expected) {
  try {
    const Json state = parse(text);
    updates = count_of(state, "updates");
    samples = count_of(state, "samples");
    data_begin = read_data_begin(state);
    require_input(data_begin.samples <= samples, "the checkpoint's trainer state has data that begin after {} samples",
                  samples);
    schedule_steps = count_or_zero(state, "schedule_steps");
    skipped = count_of(state, "skipped");
    skipped_in_a_row = count_of(state, "skipped_in_a_row");
    outliers = count_or_zero(state, "outliers");
    outliers_in_a_row = count_or_zero(state, "outliers_in_a_row");
    rollbacks = count_or_zero(state, "rollbacks");
    unwritten_routing = read_unwritten_routing(state);
    soundness = read_soundness(state);
    recent = read_recent(state);
    load = read_load(state);
    idle = read_idle(state, expected);
    clear_routing();
    routing_tokens = count_of(state, "routing_tokens");
    for (const Json& sums : state.at("routing")) {
      routing.push_back({.id = id_of(sums),
                         .top_k = Exact(sums.at("top_k")),
                         .experts = Exact(sums.at("experts")),
                         .counts = Exact(sums.at("counts")),
                         .probability = sums.at("probability"),
                         .entropy = number_or_nan(sums, "entropy"),
                         .dropped = read_dropped(sums)});
      routing_steps.push_back(read_steps(sums));
    }
    replicas = read_replicas(state, expected);
  } catch (const nlohmann::json::exception& error) {
    fail_unreadable(error);
  }
  const bool same_mixture = std::ranges::all_of(unwritten_routing, [&](const RoutingRecord& record) {
    return same_layers(record.layers, &LayerRouting::mean_probability, expected);
  });
  require_input(same_mixture && (routing.empty() || same_layers(routing, &RoutingSums::probability, expected)),
                "the checkpoint's routing counts are for different experts: set moe.top_k, moe.experts and "
                "attention_experts.* as in its run");
  // A checkpoint may have been made with another moe.capacity_factor, or with none.
  const auto fit = [&](auto& layers) {
    for (std::size_t i = 0; i < layers.size(); ++i) layers[i].dropped.resize(expected[i].dropped.size(), 0);
  };
  fit(routing);
  for (RoutingRecord& record : unwritten_routing) fit(record.layers);
}

}  // namespace lyceum
