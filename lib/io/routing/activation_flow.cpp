#include "io/routing/activation_flow.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <numeric>

#include "core/real_text.h"
#include "io/files/hdf5.h"
#include "io/files/new_hdf5.h"
#include "io/routing/groups.h"
#include "io/text/json.h"
#include "io/text/table.h"

namespace lyceum {
namespace {

constexpr std::size_t reported_part = 2;  // index into high_parts of the paper's 20 %
constexpr std::int64_t short_window = 2, long_window = 9;

std::string half_of(const MixtureId& id) { return id.site == Site::attention ? "attention" : "FFN"; }

std::string percent(double part) { return std::isnan(part) ? "-" : real_text(100 * part, ".1f") + " %"; }

/// Returns the values of a half's input, given the index of those of its output, which follow it.
const ActivationFlow::Values& input_of(const ActivationFlow& flow, std::size_t output) {
  return flow.values.at(output - 1);
}

/// Returns mean and standard deviation over layers of number(values) for the outputs of one half, in percent.
template <class Number>
std::string over_layers(const ActivationFlow& flow, Site site, Number number) {
  double sum = 0, squares = 0, layers = 0;
  for (const ActivationFlow::Values& values : flow.values) {
    if (!values.output || values.id.site != site) continue;
    const double value = number(values);
    sum += value;
    squares += value * value;
    ++layers;
  }
  const double mean = sum / layers;
  const double deviation = std::sqrt(std::max(squares / layers - mean * mean, 0.0));
  return fmt::format("{} ± {} %", real_text(100 * mean, ".1f"), real_text(100 * deviation, ".1f"));
}

std::string chance_text(const ActivationFlow& flow) {
  const double part =
      static_cast<double>(dimensions_of(high_parts[reported_part], flow.hidden)) / static_cast<double>(flow.hidden);
  return fmt::format("if tokens were independent: {} high in {}, {} in {}, {:.2f} in a row\n",
                     percent(std::pow(part, short_window)), short_window, percent(std::pow(part, long_window)),
                     long_window, 1 / (1 - part));
}

struct FlowAxes {
  hdf5::Dataset dimension, dimensions, part, window, high;
};

hdf5::Dataset flow_scale(hdf5::File& out, const std::string& name, const std::vector<double>& numbers) {
  hdf5::Dataset scale = out.create_dataset("/" + name, DType::f64, {std::ssize(numbers)});
  scale.write(numbers.data());
  scale.set("units", "1");
  scale.make_scale(name);
  return scale;
}

std::vector<double> counted_from(double first, std::int64_t count) {
  std::vector<double> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

struct FlowAxis {
  const char* name;
  const hdf5::Dataset& scale;
};

void write_values(hdf5::File& out, const std::string& path, const std::vector<double>& values,
                  std::initializer_list<FlowAxis> axes) {
  Shape shape;
  if (axes.size() == 1) shape = {axes.begin()->scale.shape()[0]};
  if (axes.size() == 2) shape = {axes.begin()->scale.shape()[0], (axes.begin() + 1)->scale.shape()[0]};
  hdf5::Dataset dataset = out.create_dataset(path, DType::f64, shape);
  dataset.write(values.data());
  dataset.set("units", "1");
  int index = 0;
  for (const FlowAxis& axis : axes) {
    dataset.attach_scale(index, axis.scale);
    dataset.label(index++, axis.name);
  }
}

}  // namespace

std::int64_t dimensions_of(double part, std::int64_t hidden) {
  const double exact = part * static_cast<double>(hidden);
  // Subtracts rounding errors: 0.1 · 30 is above 3 in double.
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(exact - 1e-9)));
}

double ActivationFlow::Values::mean_magnitude() const {
  return std::accumulate(magnitude.begin(), magnitude.end(), 0.0) / static_cast<double>(magnitude.size());
}

double ActivationFlow::Values::share_of_top(double part) const {
  return top_share.at(static_cast<std::size_t>(dimensions_of(part, std::ssize(top_share))) - 1);
}

double ActivationFlow::Values::dimensions_for(double share) const {
  const auto first = std::ranges::find_if(top_share, [&](double held) { return held >= share; });
  const auto dimensions = std::min<std::ptrdiff_t>(first - top_share.begin() + 1, std::ssize(top_share));
  return static_cast<double>(dimensions) / static_cast<double>(top_share.size());
}

double ActivationFlow::Values::common_part(std::size_t q, std::int64_t tokens) const {
  return common.at(q * static_cast<std::size_t>(longest_window) + static_cast<std::size_t>(tokens - 1)) /
         static_cast<double>(magnitude.size());
}

std::string flow_text(const ActivationFlow& flow) {
  std::string text = fmt::format(
      "checkpoint     {} (step {})\ndata           {}\ntokens         {}\nloss           {} nats per token\n\n",
      flow.checkpoint, flow.step, flow.data, flow.tokens, real_text(flow.loss, ".6f"));
  text +=
      "Magnitudes (squares) of the hidden dimensions, the share of a token's sum in the largest, and the fewest that "
      "hold 90 %\n";
  Table table({"layer", "of", ">mean", ">of input", ">median", ">top 10 %", ">top 25 %", ">top 50 %", ">90 % in",
               fmt::format(">high in {}", short_window), fmt::format(">in {}", long_window), ">in a row"});
  for (std::size_t v = 0; v < flow.values.size(); ++v) {
    const ActivationFlow::Values& values = flow.values[v];
    const double mean = values.mean_magnitude(), run = values.run.at(reported_part);
    table.add({std::to_string(values.id.layer), half_of(values.id) + (values.output ? " output" : " input"),
               real_text(mean, ".4f"), values.output ? percent(mean / input_of(flow, v).mean_magnitude()) : "",
               real_text(values.median, ".4f"), percent(values.share_of_top(0.1)), percent(values.share_of_top(0.25)),
               percent(values.share_of_top(0.5)), percent(values.dimensions_for(0.9)),
               percent(values.common_part(reported_part, short_window)),
               percent(values.common_part(reported_part, long_window)), std::isnan(run) ? "-" : real_text(run, ".2f")});
  }
  text += table.text();
  text += fmt::format("high: among the largest {:.0f} % of the token's dimensions; {}", 100 * high_parts[reported_part],
                      chance_text(flow));
  for (const Site site : {Site::attention, Site::ffn}) {
    text += fmt::format(
        "{:<9} outputs, mean ± standard deviation over layers: top 50 % have {}; high in {} tokens {}\n",
        half_of({0, site}), over_layers(flow, site, [](const auto& values) { return values.share_of_top(0.5); }),
        short_window,
        over_layers(flow, site, [](const auto& values) { return values.common_part(reported_part, short_window); }));
  }
  return text;
}

std::string flow_json(const ActivationFlow& flow) {
  using Json = nlohmann::ordered_json;
  Json result{{"checkpoint", flow.checkpoint}, {"step", flow.step}, {"data", flow.data},
              {"tokens", flow.tokens},         {"loss", flow.loss}, {"hidden", flow.hidden},
              {"values", Json::array()}};
  for (const ActivationFlow::Values& values : flow.values) {
    result["values"].push_back({{"layer", values.id.layer},
                                {"site", values.id.site == Site::attention ? "attention" : "ffn"},
                                {"of", values.output ? "output" : "input"},
                                {"mean_magnitude", values.mean_magnitude()},
                                {"median", values.median},
                                {"top_10_percent", values.share_of_top(0.1)},
                                {"top_25_percent", values.share_of_top(0.25)},
                                {"top_50_percent", values.share_of_top(0.5)},
                                {"dimensions_for_90_percent", values.dimensions_for(0.9)},
                                {"high_in_2", values.common_part(reported_part, short_window)},
                                {"high_in_9", values.common_part(reported_part, long_window)},  // NaN becomes null
                                {"run", values.run.at(reported_part)}});
  }
  return json_text(result) + '\n';
}

void write_flow(const std::filesystem::path& file, const ActivationFlow& flow) {
  write_hdf5(file, [&](hdf5::File& out) {
    out.set("format", "lyceum.flow");
    out.set("format_version", flow_format_version);
    out.set("checkpoint", flow.checkpoint);
    out.set("step", flow.step);
    out.set("data", flow.data);
    out.set("tokens", flow.tokens);
    out.set("seq_len", flow.seq_len);
    out.set("loss", flow.loss);
    const FlowAxes axes{
        .dimension = create_scale(out, "/dimension", flow.hidden, "dimension"),
        .dimensions = flow_scale(out, "dimensions", counted_from(1, flow.hidden)),
        .part = flow_scale(out, "part", std::vector<double>(high_parts.begin(), high_parts.end())),
        .window = flow_scale(out, "window", counted_from(1, longest_window)),
        .high = flow_scale(out, "high", counted_from(0, shared_window + 1)),
    };
    for (const ActivationFlow::Values& values : flow.values) {
      const std::string group =
          fmt::format("/layers/{:03}/{}/{}", values.id.layer, values.id.site == Site::attention ? "attention" : "ffn",
                      values.output ? "output" : "input");
      write_values(out, group + "/magnitude", values.magnitude, {{"dimension", axes.dimension}});
      write_values(out, group + "/top_share", values.top_share, {{"dimensions", axes.dimensions}});
      write_values(out, group + "/common", values.common, {{"part", axes.part}, {"window", axes.window}});
      write_values(out, group + "/shared", values.shared, {{"part", axes.part}, {"high", axes.high}});
      write_values(out, group + "/run", values.run, {{"part", axes.part}});
      out.object(group).set("median", values.median);
    }
  });
}

}  // namespace lyceum
