#include "plan/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

#include "config/ini_file.h"
#include "core/error.h"
#include "plan/default_cluster.h"

namespace lyceum {

namespace {

constexpr double giga = 1e9, tera = 1e12, micro = 1e-6;

/// Returns the bytes that leave a rank for each byte that Traffic counts, in a group of n ranks.
double wire_share(Transfer transfer, double n) {
  switch (transfer) {
    case Transfer::all_reduce: return 2 * (n - 1) / n;
    case Transfer::reduce_scatter: return (n - 1) / n;
    case Transfer::all_gather: return n - 1;
    default: return 1;
  }
}

/// Returns the smallest number of a group's members on one machine, over all machines that have any. `first`: the first
/// rank of the group; `stride`: distance of its ranks; `node`: ranks per machine.
int fewest_together(int first, int size, int stride, int node) {
  if (stride >= node) return 1;
  const int on_first = (node - first % node + stride - 1) / stride;
  if (on_first >= size) return size;
  const int last = first + (size - 1) * stride, on_last = last % node / stride + 1;
  const bool others = last / node - first / node > 1;
  return std::min({on_first, on_last, others ? node / stride : size});
}

/// Returns share_outside() on `expert_copies`. Within a pipeline stage, a group has `expert_tensor` adjacent ranks in
/// every `expert · expert_tensor` ranks.
double expert_copies_outside(const Cluster& cluster, const MeshRank& mesh_rank) {
  const int adjacent = mesh_rank.shape.expert_tensor, period = mesh_rank.shape.expert * adjacent;
  const int stage = mesh_rank.stage_ranks(), node = cluster.node_ranks;
  const int size = mesh_rank.size(Axis::expert_copies);
  int fewest = size;
  const int unlike_stages = node / std::gcd(node, stage);  // after this many stages, their positions on machines repeat
  for (int s = 0; s < std::min(unlike_stages, mesh_rank.shape.pipeline); ++s) {
    const int begin = s * stage;
    for (int machine = begin / node; machine * node < begin + stage; ++machine) {
      const int from = std::max(machine * node - begin, 0), to = std::min((machine + 1) * node - begin, stage);
      for (int first = 0; first < period; first += adjacent) {
        const auto members_before = [&](int offset) {
          return offset / period * adjacent + std::clamp(offset % period - first, 0, adjacent);
        };
        const int members = members_before(to) - members_before(from);
        if (members > 0) fewest = std::min(fewest, members);
      }
    }
  }
  return static_cast<double>(size - fewest) / (size - 1);
}

/// Returns the share of a rank's peers that are on other machines, in the group of the axis that is split worst, since
/// all ranks wait for it.
double share_outside(const Cluster& cluster, const MeshRank& mesh_rank, Axis axis) {
  if (axis == Axis::expert_copies) return expert_copies_outside(cluster, mesh_rank);
  const int size = mesh_rank.size(axis), stride = mesh_rank.stride(axis), node = cluster.node_ranks;
  // Groups form blocks of `block` consecutive ranks; each of the first `stride` ranks of a block begins a group. The
  // group of the first or of the last of these is split worst.
  const int block = axis == Axis::pipeline_ends ? mesh_rank.world : size * stride;
  if (mesh_rank.world <= node || node % block == 0) return 0;
  const int last = std::min(stride, block - (size - 1) * stride) - 1;
  const int unlike_blocks = node / std::gcd(node, block);  // after this many blocks, their positions on machines repeat
  int fewest = size;
  for (int b = 0; b < std::min(unlike_blocks, mesh_rank.world / block) && fewest > 1; ++b) {
    for (const int first : {b * block, b * block + last}) {
      fewest = std::min(fewest, fewest_together(first, size, stride, node));
    }
  }
  return static_cast<double>(size - fewest) / (size - 1);
}

/// A key of a cluster file: the variable that it sets, and its unit.
struct Key {
  double* value;
  double unit;
  bool may_be_zero = false;
  bool given = false;
};
using Keys = std::map<std::string, Key>;

/// Reads an entry. Returns an error message, or an empty string if the value was stored.
std::string take(Keys& keys, const IniEntry& entry, const std::string& file) {
  const auto key = keys.find(entry.key);
  if (key == keys.end()) return fmt::format("unknown key '{}' in {} line {}", entry.key, file, entry.line);
  double value = 0;
  const char* end = entry.value.data() + entry.value.size();
  const auto [rest, error] = std::from_chars(entry.value.data(), end, value);
  const bool fine = error == std::errc() && rest == end && std::isfinite(value) &&
                    (value > 0 || (value == 0 && key->second.may_be_zero));
  if (!fine) {
    return fmt::format("{} = {} in {} line {}: must be a positive number", entry.key, entry.value, file, entry.line);
  }
  *key->second.value = value * key->second.unit;
  key->second.given = true;
  return {};
}

/// Checks the values together and appends what is missing or out of range to `mistakes`.
void check_all(const Keys& keys, const Cluster& cluster, double node_ranks, const std::string& file,
               std::vector<std::string>& mistakes) {
  for (const auto& [name, key] : keys) {
    if (!key.given) mistakes.push_back(fmt::format("{}: {} is missing", file, name));
  }
  if (cluster.overlap > 1) mistakes.push_back(fmt::format("{}: overlap.share must be at most 1", file));
  constexpr double most_node_ranks = 4096;
  if (node_ranks != std::floor(node_ranks) || node_ranks > most_node_ranks) {
    mistakes.push_back(
        fmt::format("{}: node.ranks = {} must be a whole number, at most {}", file, node_ranks, most_node_ranks));
  }
}

Cluster cluster_of(const std::vector<IniEntry>& entries, std::vector<std::string> mistakes, const std::string& file,
                   Precision precision) {
  Cluster cluster;
  const bool bf16 = precision == Precision::bf16;
  double node_ranks = 0, unused = 0;
  Keys keys{
      {"rank.memory_gb", {&cluster.memory, giga}},
      {"rank.tflops_bf16", {bf16 ? &cluster.flops : &unused, tera}},
      {"rank.tflops_f32", {bf16 ? &unused : &cluster.flops, tera}},
      {"rank.memory_gb_per_second", {&cluster.memory_bytes, giga}},
      {"node.ranks", {&node_ranks, 1}},
      {"node.gb_per_second", {&cluster.node_bytes, giga}},
      {"node.latency_us", {&cluster.node_latency, micro, true}},
      {"network.gb_per_second", {&cluster.network_bytes, giga}},
      {"network.latency_us", {&cluster.network_latency, micro, true}},
      {"overlap.share", {&cluster.overlap, 1, true}},
  };
  for (const IniEntry& entry : entries) {
    if (entry.key == "cluster.name") {
      cluster.name = entry.value;
    } else if (std::string mistake = take(keys, entry, file); !mistake.empty()) {
      mistakes.push_back(std::move(mistake));
    }
  }
  if (mistakes.empty()) check_all(keys, cluster, node_ranks, file, mistakes);
  std::string all;
  for (const std::string& mistake : mistakes) all += fmt::format("{}{}", all.empty() ? "" : "; ", mistake);
  require_input(mistakes.empty(), "{}", all);
  cluster.node_ranks = static_cast<int>(node_ranks);
  if (cluster.name.empty()) cluster.name = file;
  return cluster;
}

}  // namespace

Cluster read_cluster(const std::string& file, Precision precision) {
  std::vector<std::string> mistakes;
  const std::vector<IniEntry> entries = read_ini(file, mistakes);
  return cluster_of(entries, mistakes, file, precision);
}

Cluster default_cluster(Precision precision) {
  std::istringstream text(default_cluster_text());
  std::vector<std::string> mistakes;
  const std::string name = "the built-in cluster";
  const std::vector<IniEntry> entries = read_ini(text, name, mistakes);
  return cluster_of(entries, mistakes, name, precision);
}

double seconds(const Cluster& cluster, const MeshRank& mesh_rank, const Traffic& traffic) {
  double sum = 0;
  for (std::size_t a = 0; a < axis_names.size(); ++a) {
    const auto axis = static_cast<Axis>(a);
    const double size = mesh_rank.size(axis);
    if (size == 1 || traffic.bytes(axis) == 0) continue;
    const double outside = share_outside(cluster, mesh_rank, axis);
    for (std::size_t t = 0; t < transfer_names.size(); ++t) {
      const auto transfer = static_cast<Transfer>(t);
      const Volume& volume = traffic.of(axis, transfer);
      if (volume.calls == 0) continue;
      const double bytes = volume.bytes * wire_share(transfer, size);
      if (transfer == Transfer::all_to_all) {
        sum += std::max(bytes * outside / cluster.network_bytes, bytes * (1 - outside) / cluster.node_bytes);
      } else {
        sum += bytes / (outside > 0 ? cluster.network_bytes : cluster.node_bytes);
      }
      sum += volume.calls * std::ceil(std::log2(size)) * (outside > 0 ? cluster.network_latency : cluster.node_latency);
    }
  }
  return sum;
}

}  // namespace lyceum
