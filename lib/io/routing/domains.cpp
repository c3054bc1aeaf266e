#include "io/routing/domains.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/real_text.h"
#include "io/files/hdf5.h"
#include "io/files/new_hdf5.h"
#include "io/routing/groups.h"
#include "io/text/json.h"
#include "io/text/table.h"

namespace lyceum {
namespace {

constexpr std::size_t reported_spreads = 3;

/// Returns the choices whose shares differ most between data sets, with the lowest and the highest share of each: "5
/// (prose 3.1 %, code 12.4 %), 0 (…)".
std::string spreads_text(const DomainRouting& domains, const DomainRouting::Router& router) {
  std::string text;
  for (const DomainSpread& spread : widest_spreads(domains, router, reported_spreads)) {
    text += fmt::format("{}{} ({} {} %, {} {} %)", text.empty() ? "" : ", ", spread.choice,
                        domains.data_sets[spread.lowest].name, real_text(100 * spread.low, ".1f"),
                        domains.data_sets[spread.highest].name, real_text(100 * spread.high, ".1f"));
  }
  return text;
}

/// Writes a dataset with a name and a dimension scale for each axis.
template <class T>
void write_numbers(hdf5::File& out, const std::string& path, const Shape& shape, const std::vector<T>& values,
                   const char* units, std::initializer_list<std::pair<const char*, const hdf5::Dataset*>> axes) {
  hdf5::Dataset dataset = out.create_dataset(path, dtype_of<T>, shape);
  dataset.write(values.data());
  dataset.set("units", units);
  int axis = 0;
  for (const auto& [name, scale] : axes) {
    dataset.attach_scale(axis, *scale);
    dataset.label(axis++, name);
  }
}

void write_router(hdf5::File& out, const DomainRouting& domains, const DomainRouting::Router& router,
                  const hdf5::Dataset& data_set) {
  const std::string group = group_of(router.id);
  const auto sets = std::ssize(domains.data_sets), choices = std::ssize(router.widths);
  const hdf5::Dataset choice = create_scale(out, group + "/choice", router.top_k, "choice");
  const hdf5::Dataset expert = create_scale(out, group + "/expert", choices, "expert");
  std::vector<std::int64_t> counts;
  std::vector<double> shares, distances;
  std::vector<float> probability, entropy;
  for (std::size_t d = 0; d < domains.data_sets.size(); ++d) {
    const LayerRouting& routing = router.routing[d];
    std::ranges::copy(routing.counts, std::back_inserter(counts));
    std::ranges::copy(router.shares(d), std::back_inserter(shares));
    std::ranges::copy(routing.mean_probability, std::back_inserter(probability));
    entropy.push_back(routing.mean_entropy);
    for (std::size_t other = 0; other < domains.data_sets.size(); ++other) {
      distances.push_back(router.distance(d, other));
    }
  }
  const std::pair<const char*, const hdf5::Dataset*> set{"data_set", &data_set}, k{"choice", &choice},
      e{"expert", &expert};
  write_numbers(out, group + "/counts", {sets, router.top_k, choices}, counts, "tokens", {set, k, e});
  write_numbers(out, group + "/share", {sets, choices}, shares, "1", {set, e});
  write_numbers(out, group + "/mean_probability", {sets, choices}, probability, "1", {set, e});
  write_numbers(out, group + "/mean_entropy", {sets}, entropy, "nat", {set});
  write_numbers(out, group + "/total_variation", {sets, sets}, distances, "1", {set, set});
  for (const char* member : {"", "/counts", "/share", "/mean_probability"}) {
    hdf5::Object object = out.object(group + member);
    object.set("expert_sizes", router.widths);
    object.set("always_on", router.always_on);
  }
  out.object(group).set("router", router.kind);
}

}  // namespace

std::vector<double> DomainRouting::Router::shares(std::size_t data_set) const {
  const std::vector<std::int64_t>& counts = routing.at(data_set).counts;
  std::vector<double> shares(choices(), 0.0);
  for (std::size_t i = 0; i < counts.size(); ++i) shares[i % choices()] += static_cast<double>(counts[i]);
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (all > 0) {
    for (double& share : shares) share /= all;
  }
  return shares;
}

double DomainRouting::Router::distance(std::size_t a, std::size_t b) const {
  const std::vector<double> p = shares(a), q = shares(b);
  double sum = 0;
  for (std::size_t c = 0; c < p.size(); ++c) sum += std::abs(p[c] - q[c]);
  return sum / 2;
}

DomainDistance distance_of(const DomainRouting& domains, const DomainRouting::Router& router) {
  DomainDistance result;
  int pairs = 0;
  for (std::size_t a = 0; a < domains.data_sets.size(); ++a) {
    for (std::size_t b = a + 1; b < domains.data_sets.size(); ++b, ++pairs) {
      const double distance = router.distance(a, b);
      result.mean += distance;
      if (pairs == 0 || distance > result.largest) {
        result.largest = distance;
        result.a = a;
        result.b = b;
      }
    }
  }
  if (pairs > 0) result.mean /= pairs;
  return result;
}

std::vector<DomainSpread> widest_spreads(const DomainRouting& domains, const DomainRouting::Router& router,
                                         std::size_t most) {
  std::vector<std::vector<double>> shares;
  for (std::size_t d = 0; d < domains.data_sets.size(); ++d) shares.push_back(router.shares(d));
  std::vector<DomainSpread> spreads;
  for (std::size_t c = 0; c < router.choices(); ++c) {
    const auto less = [c](const std::vector<double>& a, const std::vector<double>& b) { return a[c] < b[c]; };
    const auto [low, high] = std::ranges::minmax_element(shares, less);
    if ((*high)[c] == (*low)[c]) continue;
    spreads.push_back({.choice = c,
                       .lowest = static_cast<std::size_t>(low - shares.begin()),
                       .highest = static_cast<std::size_t>(high - shares.begin()),
                       .low = (*low)[c],
                       .high = (*high)[c]});
  }
  std::ranges::stable_sort(spreads, std::ranges::greater(), [](const DomainSpread& s) { return s.high - s.low; });
  spreads.resize(std::min(spreads.size(), most));
  return spreads;
}

std::string domain_text(const DomainRouting& domains) {
  std::string text = fmt::format("checkpoint     {} (step {})\n\n", domains.checkpoint, domains.step);
  Table sets({"data set", ">tokens", ">loss", "token files"});
  for (const DomainRouting::DataSet& set : domains.data_sets) {
    sets.add({set.name, std::to_string(set.tokens), real_text(set.loss, ".4f"), set.prefix});
  }
  text += sets.text();
  text += "\nShares of the choices by data set; TV: total-variation distance of two sets, 0: equal, 1: disjoint\n";
  Table routers({"layer", "router", ">experts", ">top_k", ">mean TV", ">largest TV", "of", "experts that differ most"});
  for (const DomainRouting::Router& router : domains.routers) {
    const DomainDistance apart = distance_of(domains, router);
    const bool alone = domains.data_sets.size() < 2;
    const auto number = [&](double value) { return alone ? "-" : real_text(value, ".4f"); };
    routers.add({"layer" + label_of(router.id), router.kind, std::to_string(router.choices()),
                 std::to_string(router.top_k), number(apart.mean), number(apart.largest),
                 alone ? "-" : domains.data_sets[apart.a].name + ", " + domains.data_sets[apart.b].name,
                 spreads_text(domains, router)});
  }
  return text + routers.text();
}

std::string domain_json(const DomainRouting& domains) {
  using Json = nlohmann::ordered_json;
  Json result{{"checkpoint", domains.checkpoint}, {"step", domains.step}};
  result["data_sets"] = Json::array();
  for (const DomainRouting::DataSet& set : domains.data_sets) {
    result["data_sets"].push_back(
        {{"name", set.name}, {"data", set.prefix}, {"tokens", set.tokens}, {"loss", set.loss}});
  }
  result["routers"] = Json::array();
  for (const DomainRouting::Router& router : domains.routers) {
    Json row{{"layer", router.id.layer},      {"site", router.id.site == Site::attention ? "attention" : "ffn"},
             {"router", router.kind},         {"top_k", router.top_k},
             {"always_on", router.always_on}, {"widths", router.widths}};
    for (std::size_t d = 0; d < domains.data_sets.size(); ++d) {
      const std::string& name = domains.data_sets[d].name;
      row["share"][name] = router.shares(d);
      row["mean_probability"][name] = router.routing[d].mean_probability;
      for (std::size_t other = 0; other < d; ++other) {
        row["total_variation"][domains.data_sets[other].name][name] = router.distance(other, d);
      }
    }
    result["routers"].push_back(std::move(row));
  }
  return json_text(result) + '\n';
}

void write_domains(const std::filesystem::path& file, const DomainRouting& domains) {
  write_hdf5(file, [&](hdf5::File& out) {
    std::vector<std::string> names, prefixes;
    std::vector<std::int64_t> tokens;
    std::vector<double> losses;
    for (const DomainRouting::DataSet& set : domains.data_sets) {
      names.push_back(set.name);
      prefixes.push_back(set.prefix);
      tokens.push_back(set.tokens);
      losses.push_back(set.loss);
    }
    out.set("format", "lyceum.domains");
    out.set("format_version", domains_format_version);
    out.set("checkpoint", domains.checkpoint);
    out.set("step", domains.step);
    out.set("data_sets", names);
    out.set("data", prefixes);
    const auto sets = std::ssize(names);
    const hdf5::Dataset data_set = create_scale(out, "/data_set", sets, "data_set");
    write_numbers(out, "/tokens", {sets}, tokens, "tokens", {{"data_set", &data_set}});
    write_numbers(out, "/loss", {sets}, losses, "nat", {{"data_set", &data_set}});
    for (const DomainRouting::Router& router : domains.routers) write_router(out, domains, router, data_set);
  });
}

}  // namespace lyceum
