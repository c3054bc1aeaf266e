#include "apps/convert_average.h"

#include <boost/algorithm/string/classification.hpp>
#include <boost/algorithm/string/join.hpp>
#include <boost/algorithm/string/split.hpp>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "apps/convert_config.h"
#include "apps/run_config.h"
#include "apps/version.h"
#include "config/check.h"
#include "config/continuation.h"
#include "convert/transforms/average.h"
#include "core/error.h"
#include "io/text/table.h"
#include "train/setup/run_setup.h"

namespace lyceum {

namespace {

constexpr std::size_t most_open_shards = 256;  // of all sources, on each rank; at least one of each source

/// Reads the numbers of --weights. Throws a usage Error unless they are `count` finite numbers whose sum is not 0.
std::vector<double> weights_of(const std::optional<std::string>& given, std::size_t count) {
  if (!given) return std::vector<double>(count, 1);
  const std::string& text = *given;
  std::vector<std::string> parts;
  boost::split(parts, text, boost::is_any_of(","));
  require_usage(parts.size() == count, "--weights has {} for {}: give one for each, in their order",
                count_text(std::ssize(parts), "number"), count_text(static_cast<std::int64_t>(count), "checkpoint"));
  std::vector<double> weights;
  double sum = 0, size = 0;
  for (const std::string& part : parts) {
    double& weight = weights.emplace_back();
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), weight);
    require_usage(error == std::errc() && end == part.data() + part.size() && std::isfinite(weight),
                  "--weights = {}: '{}' is not a number", text, part);
    sum += weight;
    size += std::abs(weight);
  }
  require_usage(std::isfinite(size), "--weights = {}: their sum is too large for a number", text);
  constexpr double rounding = 1e-12;
  require_usage(std::abs(sum) > rounding * size, "--weights = {}: their sum is 0, by which the mean is divided", text);
  return weights;
}

/// Describes the keys whose values in a later checkpoint differ from those of the first one, which the new run has.
/// Both configurations must be resolved.
std::string differences_text(const Config& first, const Config& later, const std::string& name) {
  std::string text;
  for (const Change& change : changes(first, later)) {
    if (change.role != KeyRole::identity) continue;
    text += fmt::format("differs    {} = {} in {}: the new run has {}\n", change.key, change.after, name,
                        change.before.empty() ? "none" : change.before);
  }
  return text;
}

/// Collective over the world. Writes the mean of the sources as a new run. Throws the errors of write_run(), and the
/// same bad_input Error on all ranks if a source could not be read on one.
void write_average(const Conversion& conversion, std::span<const CheckpointReader> sources,
                   const std::vector<double>& weights, const ProcessGroup& world, const std::string& title) {
  NewRun run = averaged_run(conversion, sources, weights);
  std::string unreadable;  // the error of a source on this rank
  for (auto& tensor : run.tensors) {
    tensor.make = [&unreadable, make = std::move(tensor.make)](std::span<float> values) {
      try {
        make(values);
      } catch (const Error& error) {
        if (error.code() == ExitCode::bad_input) unreadable = error.what();
        throw;
      }
    };
  }
  try {
    write_run(run, world, title);
  } catch (const CheckpointNotSaved&) {  // on all ranks
    for (const std::string& problem : world.all_gather(unreadable)) require_input(problem.empty(), "{}", problem);
    throw;
  }
}

}  // namespace

int average_checkpoints(const MpiSession& session, const Averaging& averaging, const Arguments& arguments,
                        const LoadedConfig& given, const PrintOnce& print_once) {
  const std::vector<double> weights = weights_of(averaging.weights, averaging.sources.size());
  std::vector<CheckpointReader> sources;
  std::vector<Config> configs;
  std::vector<std::string> names;
  LoadedConfig first;
  for (const std::string& path : averaging.sources) {
    CheckpointReader& source =
        sources.emplace_back(resolve_checkpoint(path), most_open_shards / averaging.sources.size());
    if (averaging.ema) source.use_averages();
    names.push_back(source.directory().string());
    const std::string problem = source.problem(CheckpointReader::Check::sizes);
    require_input(problem.empty(), "{}", problem);
    LoadedConfig own = config_of_merged(source);
    if (configs.empty()) first = own;
    resolve(own.config, 1);
    configs.push_back(std::move(own.config));
  }
  require_same_model(sources, configs);
  const std::int64_t step = sources[0].header().step;
  const LoadedConfig wanted = converted_config(first, step, averaging.out, arguments, given);
  const Conversion conversion = convert({.transform = "reset"}, sources[0], first.config, wanted);
  if (given.print_config) {
    print_once(print_config({.config = conversion.resolved, .origin = given.origin}));
    return 0;
  }
  print_once(left_out_stages(given, step, averaging.out));
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const std::string& unsound = sources[s].header().unsound;
    print_once(fmt::format("averaged   {} (step {}), weight {}{}\n", names[s], sources[s].header().step, weights[s],
                           unsound.empty() ? "" : ", not sound: " + unsound));
    print_once(differences_text(configs[0], configs[s], names[s]));
  }
  std::vector<TensorLine> lines;
  for (const Recipe& recipe : conversion.recipes) lines.push_back(line_of(recipe));
  print_once(changes_text(first.config, conversion.resolved) + tensor_table(lines) +
             left_over_text(sources[0], conversion.recipes));
  if (averaging.dry_run) return 0;
  const auto lock = lock_new_run(conversion.config, session);
  const std::string title =
      fmt::format("lyceum {}: convert {} {}", program_version(), average, boost::join(names, " "));
  write_average(conversion, sources, weights, session.world(conversion.config.run.timeout_seconds), title);
  print_once(fmt::format("written    {0}: lyceum train --config {0}/config.ini continues from it\n", averaging.out));
  return 0;
}

}  // namespace lyceum
