#include "io/report/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "io/report/chart.h"
#include "parallel/pipeline/schedule_text.h"

namespace lyceum {
namespace {

constexpr double left = 64, top = 64, row = 26, box = 22, right = 24, gap = 1;
constexpr double character = 8;  // pixels of the widest character of a name in a box

using Colour = std::array<int, 3>;
struct ActionLook {
  std::string_view name;  // shown in the legend
  Colour colour;          // light enough for dark text
};
/// The four kinds of actions that compute, in the order of their enumerators.
constexpr std::array<ActionLook, 4> looks{{{"forward", {116, 172, 226}},
                                           {"backward", {240, 178, 84}},
                                           {"backward, input", {240, 143, 88}},
                                           {"backward, weights", {136, 198, 130}}}};

/// Returns `colour` mixed with a share of white, as a CSS colour.
std::string mixed_with_white(const Colour& colour, double share) {
  const auto mixed = [share](int part) { return std::lround(part + share * (255 - part)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(colour[0]), mixed(colour[1]), mixed(colour[2]));
}

const ActionLook& look_of(const Action& action) { return looks[static_cast<std::size_t>(action.kind)]; }

/// Returns the pixels per unit of time: enough for the names in the boxes, within the limits of a page.
double scale_of(const Timeline& timeline) {
  double wanted = 0;
  for (const auto& actions : timeline.ranks) {
    for (const TimedAction& timed : actions) {
      const double length = timed.end - timed.start;
      if (!timed.action.computes() || !(length > 0)) continue;
      const auto characters = static_cast<double>(text(timed.action, timeline.shape).size());
      wanted = std::max(wanted, (characters * character + 5) / length);
    }
  }
  const double whole = timeline.makespan();
  return whole > 0 ? std::clamp(wanted * whole, 560.0, 2400.0) / whole : 0;
}

std::string box_of(const TimedAction& timed, const Timeline& timeline, double scale, double y) {
  const double x = left + scale * timed.start, width = scale * (timed.end - timed.start);
  const std::string name = text(timed.action, timeline.shape);
  const double paler = 0.6 * timeline.shape.chunk_of(timed.action.stage) / timeline.shape.virtual_stages;
  std::string svg = fmt::format(
      "<g><title>{}: {} to {}</title><rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:g}\" fill=\"{}\"/>",
      name, short_number(timed.start), short_number(timed.end), x + gap / 2, y, std::max(width - gap, width / 2), box,
      mixed_with_white(look_of(timed.action).colour, paler));
  if (width >= static_cast<double>(name.size()) * character) {
    svg += fmt::format("<text class=\"in\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>", x + width / 2, y + box / 2 + 4, name);
  }
  return svg + "</g>\n";
}

std::string timeline_legend(const Timeline& timeline) {
  std::array<bool, looks.size()> present{};
  for (const auto& actions : timeline.ranks) {
    for (const TimedAction& timed : actions) {
      if (timed.action.computes()) present[static_cast<std::size_t>(timed.action.kind)] = true;
    }
  }
  std::string svg;
  double x = left;
  for (std::size_t k = 0; k < looks.size(); ++k) {
    if (!present[k]) continue;
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"36\" width=\"14\" height=\"14\" fill=\"{}\"/>", x,
                       mixed_with_white(looks[k].colour, 0));
    svg += fmt::format("<text x=\"{:.1f}\" y=\"47.5\">{}</text>\n", x + 20, looks[k].name);
    x += 44 + 7 * static_cast<double>(looks[k].name.size());
  }
  if (timeline.shape.virtual_stages > 1) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"47.5\">paler: the later stages of a row</text>\n", x);
  }
  return svg;
}

std::string axis_of(double whole, double scale, double y, const std::string& unit) {
  std::string svg = fmt::format("<path class=\"axis\" d=\"M{:g} {:.1f}h{:.2f}", left, y, scale * whole);
  std::string words;
  for (const double tick : axis_ticks(0, whole, 8, false)) {
    svg += fmt::format("M{:.2f} {:.1f}v5", left + scale * tick, y);
    words += fmt::format("<text class=\"tick\" x=\"{:.2f}\" y=\"{:.1f}\">{}{}</text>", left + scale * tick, y + 18,
                         short_number(tick), unit);
  }
  return fmt::format("{}\"/>{}\n", svg, words);
}

constexpr std::string_view style = R"css(<style>
text{font:13px system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#6b7078}
.title{font-size:16px;font-weight:600}
.rank{text-anchor:end}
.in{font-size:11px;text-anchor:middle;fill:#1c1d20}
.tick{font-size:11px;text-anchor:middle}
.lane{fill:#808080;fill-opacity:.14}
.axis{stroke:#8a8f98;fill:none}
@media (prefers-color-scheme:dark){text{fill:#a6abb4}.in{fill:#1c1d20}}
</style>
)css";

}  // namespace

std::string timeline_svg(const Timeline& timeline, const std::string& title, const std::string& time_unit) {
  const double whole = timeline.makespan(), scale = scale_of(timeline), inner = scale * whole;
  const double bottom = top + row * static_cast<double>(timeline.ranks.size());
  const double width = left + std::max(inner, 560.0) + right, height = bottom + 60;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "role=\"img\" aria-label=\"{2}\">\n",
      width, height, escape_xml(title));
  svg += style;
  svg += fmt::format("<text class=\"title\" x=\"{:g}\" y=\"22\">{}</text>\n", left, escape_xml(title));
  svg += timeline_legend(timeline);
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const double y = top + row * static_cast<double>(rank);
    svg += fmt::format("<text class=\"rank\" x=\"{:g}\" y=\"{:.1f}\">row {}</text>", left - 8, y + box / 2 + 4.5, rank);
    svg += fmt::format("<rect class=\"lane\" x=\"{:g}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:g}\"/>\n", left, y,
                       inner, box);
    for (const TimedAction& timed : timeline.ranks[rank]) {
      if (timed.action.computes()) svg += box_of(timed, timeline, scale, y);
    }
  }
  const std::string unit = fmt::format("{}{}", time_unit.empty() ? "" : " ", escape_xml(time_unit));
  svg += axis_of(whole, scale, bottom + 2, unit);
  svg += fmt::format("<text x=\"{:g}\" y=\"{:.1f}\">makespan {}{}, bubble {:.1f} % of it</text>\n</svg>\n", left,
                     bottom + 44, short_number(whole), unit, 100 * timeline.bubble_fraction());
  return svg;
}

}  // namespace lyceum
