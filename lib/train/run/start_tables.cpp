#include "train/run/start_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "config/consistency.h"
#include "config/value_text.h"
#include "core/real_text.h"
#include "io/run/batch_job.h"
#include "io/text/table.h"
#include "model/ffn/experts.h"

namespace lyceum {

namespace {

/// The largest number of ranks for which tables have one row per rank.
constexpr std::size_t max_rows = 32;

std::string range(std::size_t first, std::size_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

/// True if two ranks on the same host can share a row.
bool can_share_row(const RankResources& a, const RankResources& b) {
  return a.host == b.host && a.threads == b.threads && a.memory == b.memory && a.device == b.device;
}

/// Returns the network devices that NCCL uses between hosts; empty without NCCL or on one host.
std::string network_line(std::span<const RankResources> resources) {
  constexpr std::size_t most_hosts = 4;
  std::vector<std::string> hosts;
  std::vector<std::pair<std::string, std::vector<std::string>>> networks;  // with their hosts
  for (const RankResources& rank : resources) {
    if (rank.network.empty() || std::ranges::find(hosts, rank.host) != hosts.end()) continue;
    hosts.push_back(rank.host);
    auto known = std::ranges::find(networks, rank.network, [](const auto& network) { return network.first; });
    if (known == networks.end()) known = networks.insert(known, {rank.network, {}});
    known->second.push_back(rank.host);
  }
  if (hosts.size() < 2) return "";
  if (networks.size() == 1) return fmt::format("network    NCCL: {} on all {} hosts", networks[0].first, hosts.size());
  std::string text;
  for (const auto& [network, its_hosts] : networks) {
    const auto named = std::span(its_hosts).first(std::min(its_hosts.size(), most_hosts));
    const std::string others =
        its_hosts.size() > most_hosts ? fmt::format(" and {} more", its_hosts.size() - most_hosts) : "";
    text += fmt::format("{}{} on {}{}", text.empty() ? "" : " · ", network, fmt::join(named, ", "), others);
  }
  return "network    NCCL: " + text;
}

/// Describes how the documents of a source are packed; empty if they are not.
std::string packing_line(const TokenSamples& samples) {
  const Packing* packing = samples.packing();
  if (!packing) return "";
  const PackingCounts& counts = packing->counts();
  const double positions = static_cast<double>(counts.sequences * counts.seq_len);
  constexpr std::int64_t least_stated = 10'000'000;
  std::string index;
  if (const InputFile* const file = packing->file()) {
    index = fmt::format("; index {}, {}", file->path(), text_of_bytes(static_cast<std::int64_t>(file->size())));
  } else if (const std::int64_t bytes = 16 * counts.spans + 8 * counts.sequences; bytes >= least_stated) {
    index = fmt::format("; no folder has room for the index: {} in the memory of every rank", text_of_bytes(bytes));
  }
  return fmt::format("packing    {}: {} in {} of {}, {:.1f} % padding, {} split{}", samples.token_source().prefix(),
                     count_text(counts.documents, "document"), count_text(counts.sequences, "sequence"), counts.seq_len,
                     100 - 100 * static_cast<double>(counts.predicted_tokens) / positions, counts.cut_documents, index);
}

/// Returns ascending experts as text: "0-3, 7".
std::string text_of(std::span<const std::int32_t> experts) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < experts.size(); first = last + 1) {
    last = first;
    while (last + 1 < experts.size() && experts[last + 1] == experts[last] + 1) ++last;
    text += fmt::format("{}{}", first ? ", " : "", experts[first]);
    if (last > first) text += fmt::format("{}{}", last > first + 1 ? "-" : ", ", experts[last]);
  }
  return text;
}

/// Returns the experts of a rank in ascending order.
std::vector<std::int32_t> sorted_experts(const MixturePlacement& layer, int rank) {
  const std::span<const std::int32_t> slots = layer.ranks.experts_of(rank);
  std::vector<std::int32_t> experts(slots.begin(), slots.end());
  std::ranges::sort(experts);
  return experts;
}

/// True if experts have moved away from the ranks that parallel.placement gives them. False with parallel.placement =
/// cost, which depends on the load at the start.
bool has_moved(const Config& config, std::span<const MixturePlacement> layers) {
  if (config.parallel.placement == PlacementKind::cost) return false;
  return std::ranges::any_of(layers, [&](const MixturePlacement& layer) {
    const Placement placed = place_experts(config, mixture_of(config, layer.id), layer.ranks.ranks(), {});
    return placed.owner != layer.ranks.owner;
  });
}

/// Returns the experts of a rank if they are the same in all layers, or else their number: "7 to 9 per layer".
std::string experts_text(std::span<const MixturePlacement> layers, int rank) {
  const std::vector<std::int32_t> experts = sorted_experts(layers[0], rank);
  std::size_t least = experts.size(), most = experts.size();
  bool same = true;
  for (const MixturePlacement& layer : layers) {
    const std::vector<std::int32_t> others = sorted_experts(layer, rank);
    same = same && experts == others;
    least = std::min(least, others.size());
    most = std::max(most, others.size());
  }
  if (same) return text_of(experts);
  return least == most ? fmt::format("{} per layer", most) : fmt::format("{} to {} per layer", least, most);
}

/// Returns the FLOPs of each expert rank over their mean [expert ranks]; all 1 if no expert has FLOPs.
std::vector<double> shares(const Config& config, const MixturePlacement& layer, std::span<const ExpertLoad> measured) {
  const std::vector<double> costs = expert_costs(mixture_of(config, layer.id), measured);
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / layer.ranks.ranks();
  std::vector<double> shares(static_cast<std::size_t>(layer.ranks.ranks()), mean > 0 ? 0.0 : 1.0);
  for (std::size_t e = 0; e < layer.ranks.owner.size() && mean > 0; ++e) {
    shares[static_cast<std::size_t>(layer.ranks.owner[e])] += costs[e] / mean;
  }
  return shares;
}

/// Returns the table of expert ranks. `flops` [expert ranks]: FLOPs over their mean.
std::vector<std::string> placement_table(const Config& config, std::span<const MixturePlacement> layers,
                                         const std::vector<double>& flops) {
  std::vector<std::int64_t> width(flops.size(), 0);  // of a rank's experts, over all layers
  for (const MixturePlacement& layer : layers) {
    const Mixture mixture = mixture_of(config, layer.id);
    for (std::size_t e = 0; e < layer.ranks.owner.size(); ++e) {
      width[static_cast<std::size_t>(layer.ranks.owner[e])] += mixture.widths[e];
    }
  }
  Table table({">expert rank", "experts", ">parameters", ">FLOPs / mean"});
  for (std::size_t rank = 0; rank < flops.size(); ++rank) {
    table.add({fmt::to_string(rank), experts_text(layers, static_cast<int>(rank)),
               human_count(static_cast<double>(expert_column(config) * width[rank])), real_text(flops[rank], ".3f")});
  }
  return table.lines();
}

}  // namespace

std::vector<std::string> rank_lines(const RunSetup& setup) {
  const std::vector<RankResources>& resources = setup.resources;
  Table table({">rank", "host", ">local", "cores", ">threads", ">memory", "device"});
  for (std::size_t first = 0, last = 0; first < resources.size(); first = last + 1) {
    last = first;
    if (resources.size() > max_rows) {
      while (last + 1 < resources.size() && can_share_row(resources[first], resources[last + 1])) ++last;
    }
    const RankResources& rank_resources = resources[first];
    const bool same_cores = rank_resources.cores == resources[last].cores;
    table.add({range(first, last), rank_resources.host,
               range(static_cast<std::size_t>(rank_resources.local_rank),
                     static_cast<std::size_t>(resources[last].local_rank)),
               same_cores ? rank_resources.cores : fmt::format("{} … {}", rank_resources.cores, resources[last].cores),
               fmt::format("{}", rank_resources.threads),
               text_of_bytes(static_cast<std::int64_t>(rank_resources.memory)), rank_resources.device});
  }
  std::vector<std::string> lines;
  if (const auto job = batch_job()) lines.push_back("job        " + text_of(*job));
  std::ranges::move(table.lines(), std::back_inserter(lines));
  if (std::string line = network_line(resources); !line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> data_lines(const Config& config, const RunData& data, std::int64_t steps) {
  const std::span<const TokenLoader::Source> sources = data.train->sources();
  const auto samples = static_cast<double>(steps * samples_per_step(config));
  const auto epochs = [&](std::size_t s) {
    return samples * data.train->weight(s) / static_cast<double>(sources[s].order.count());
  };
  const std::string held_out = data.valid.empty() ? "" : fmt::format(" · {} for validation", data.valid_samples());
  std::vector<std::string> lines;
  if (sources.size() == 1) {
    lines.push_back(fmt::format("data       {} · {} training samples{} · {:.2f} epochs",
                                sources[0].samples->token_source().prefix(), data.train->samples(), held_out,
                                epochs(0)));
  } else {
    lines.push_back(
        fmt::format("data       {} sources · {} training samples{}", sources.size(), data.train->samples(), held_out));
    Table table({"source", ">tokens", ">samples", ">weight", ">epochs"});
    for (std::size_t s = 0; s < sources.size(); ++s) {
      table.add({sources[s].samples->token_source().prefix(),
                 fmt::format("{}", sources[s].samples->token_source().tokens()),
                 fmt::format("{}", sources[s].order.count()), fmt::format("{:.4f}", data.train->weight(s)),
                 fmt::format("{:.2f}", epochs(s))});
    }
    for (const std::string& line : table.lines()) lines.push_back("           " + line);
  }
  for (const TokenLoader::Source& source : sources) {
    if (const std::string line = packing_line(*source.samples); !line.empty()) lines.push_back(line);
  }
  return lines;
}

std::string stage_changes_text(const Config& config, int stage) {
  std::string text;
  for (const auto& [key, value] : config.training_stages.at(static_cast<std::size_t>(stage) - 2).values) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value_text(value));
  }
  return text.empty() ? "no changes" : text;
}

std::vector<std::string> stage_lines(const Config& config) {
  std::vector<std::string> lines;
  for (int stage = 1; stage <= stage_count(config) && stage_count(config) > 1; ++stage) {
    lines.push_back(fmt::format("{:<11}{}, steps {} to {}{}", stage == 1 ? "stages" : "", stage,
                                first_step_of(config, stage), last_step_of(config, stage),
                                stage == 1 ? "" : ": " + stage_changes_text(config, stage)));
  }
  return lines;
}

std::vector<std::string> placement_lines(const Config& config, std::span<const MixturePlacement> layers,
                                         std::span<const ExpertLoad> measured, bool recorded) {
  if (layers.empty()) return {};
  const int ranks = layers[0].ranks.ranks();
  const auto number = static_cast<double>(layers.size());
  std::vector<double> flops(static_cast<std::size_t>(ranks), 0.0);
  double busiest = 0, worst = 0;
  for (const MixturePlacement& layer : layers) {
    const std::vector<double> own = shares(config, layer, measured);
    for (std::size_t r = 0; r < own.size(); ++r) flops[r] += own[r] / number;
    const double most = *std::max_element(own.begin(), own.end());
    busiest += most / number;
    worst = std::max(worst, most);
  }
  std::vector<std::string> lines;
  if (std::cmp_less_equal(ranks, max_rows)) lines = placement_table(config, layers, flops);
  lines.push_back(fmt::format(
      "placement  {}, {}: the busiest of {} expert ranks has {} times the mean FLOPs, {} in the worst of {}",
      recorded ? "that of the checkpoint"
               : name_of(config.parallel.placement) + (has_moved(config, layers) ? " with moves" : ""),
      measured.empty() ? "assuming an even load" : "by the measured load", ranks, real_text(busiest, ".3f"),
      real_text(worst, ".3f"), count_text(std::ssize(layers), "layer")));
  return lines;
}

}  // namespace lyceum
