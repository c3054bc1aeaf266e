#include "io/report/domains_page.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "core/real_text.h"
#include "io/report/chart.h"
#include "io/report/heat_map.h"
#include "io/report/page.h"

namespace lyceum {
namespace {

/// Returns a chart of the mean and the largest distance of two data sets by layer; empty if there is only one data set.
std::string distance_chart(const DomainRouting& domains) {
  if (domains.data_sets.size() < 2) return "";
  LineChart chart{.title = "Distance of the data sets by layer",
                  .note = "Total-variation distance of the shares of two data sets' choices: 0: equal, 1: disjoint",
                  .x_name = "layer"};
  const bool several = domains.data_sets.size() > 2;
  for (const Site site : {Site::attention, Site::ffn}) {
    const std::string name = site == Site::attention ? "attention" : "FFN";
    ChartLine mean{.name = name + (several ? ", mean of all pairs" : ""),
                   .style = site == Site::attention ? "train" : "valid"};
    ChartLine largest{.name = name + ", largest of all pairs", .style = "raw " + mean.style};
    mean.dots = largest.dots = true;
    for (const DomainRouting::Router& router : domains.routers) {
      if (router.id.site != site) continue;
      const DomainDistance distance = distance_of(domains, router);
      mean.points.push_back({router.id.layer, distance.mean});
      largest.points.push_back({router.id.layer, distance.largest});
    }
    if (mean.points.empty()) continue;
    chart.lines.push_back(std::move(mean));
    if (several) chart.lines.push_back(std::move(largest));
  }
  return line_chart(chart);
}

/// Returns a heat map with one row per data set and one column per choice of the router. A cell is share(data set,
/// choice) relative to an even spread over the choices from `first` on. Cells of earlier choices are empty.
template <class Share>
std::string domain_map(const DomainRouting& domains, const DomainRouting::Router& router, const char* what,
                       std::int64_t first, Share share) {
  HeatMap map{
      .title = fmt::format("Layer {}: {}", label_of(router.id), what),
      .note = fmt::format("{} router, {} of {} {}s per token{}", router.kind, router.top_k,
                          std::ssize(router.widths) - router.always_on, router.choice,
                          router.always_on > 1   ? fmt::format("; the first {} are always active", router.always_on)
                          : router.always_on > 0 ? "; the first is always active"
                                                 : ""),
      .row_name = "",
      .column_name = router.choice,
      .columns = router.choices(),
      .legend = false};
  const auto even = static_cast<double>(std::ssize(router.widths) - first);
  for (std::size_t d = 0; d < domains.data_sets.size(); ++d) {
    const std::string& name = domains.data_sets[d].name;
    map.rows.push_back(name);
    auto& values = map.values.emplace_back();
    auto& titles = map.titles.emplace_back();
    for (std::size_t c = 0; c < router.choices(); ++c) {
      const bool shown = static_cast<std::int64_t>(c) >= first;
      values.push_back(shown ? share(d, c) * even : std::numeric_limits<double>::quiet_NaN());
      titles.push_back(fmt::format("{}, {} {} of width {}: {} %, {} × even", name, router.choice, c, router.widths[c],
                                   real_text(100 * share(d, c), ".2f"), real_text(values.back(), ".3f")));
    }
  }
  return heat_map(map);
}

std::string router_maps(const DomainRouting& domains, const DomainRouting::Router& router) {
  std::vector<std::vector<double>> shares;
  for (std::size_t d = 0; d < domains.data_sets.size(); ++d) shares.push_back(router.shares(d));
  const auto probability = [&](std::size_t d, std::size_t c) {
    return double{router.routing[d].mean_probability.at(c)};
  };
  return fmt::format("<div class=\"pair\">\n{}{}</div>\n",
                     domain_map(domains, router, "share of the choices", router.always_on,
                                [&](std::size_t d, std::size_t c) { return shares[d][c]; }),
                     domain_map(domains, router, "mean probability", 0, probability));
}

}  // namespace

std::string domains_page(const DomainRouting& domains) {
  const std::string title = "Routing by data set";
  std::vector<std::pair<std::string, std::string>> facts{
      {"Checkpoint", fmt::format("{}, step {}", domains.checkpoint, grouped_number(domains.step))}};
  for (const DomainRouting::DataSet& set : domains.data_sets) {
    facts.emplace_back(set.name, fmt::format("{}: {} tokens, loss {}", set.prefix, grouped_number(set.tokens),
                                             real_text(set.loss, ".4f")));
  }
  std::string body =
      fmt::format("<h1>{}</h1>\n", title) + fact_list(facts) + distance_chart(domains) +
      "<div class=\"layers\">\n<p>In the maps, each column is an expert or a sub-dimension; 1 is an even "
      "spread over those of a router.</p>\n" +
      heat_legend() + "</div>\n";
  for (const DomainRouting::Router& router : domains.routers) body += router_maps(domains, router);
  return html_page(title, body);
}

}  // namespace lyceum
