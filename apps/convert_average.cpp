#include "apps/convert_average.h"

#include <boost/algorithm/string/classification.hpp>
#include <boost/algorithm/string/join.hpp>
#include <boost/algorithm/string/split.hpp>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstddef>

#include "apps/convert_config.h"
#include "apps/run_config.h"
#include "apps/version.h"
#include "config/check.h"
#include "convert/transforms/average.h"
#include "core/error.h"
#include "io/text/table.h"
#include "train/setup/run_setup.h"

namespace lyceum {

namespace {

/// Reads the numbers of --weights. Throws a usage Error unless they are `count` finite numbers whose sum is not 0.
std::vector<double> weights_of(const std::string& text, std::size_t count) {
  if (text.empty()) return std::vector<double>(count, 1);
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
  constexpr double rounding = 1e-12;
  require_usage(std::abs(sum) > rounding * size, "--weights = {}: their sum is 0, by which the mean is divided", text);
  return weights;
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
    CheckpointReader& source = sources.emplace_back(resolve_checkpoint(path));
    if (averaging.ema) source.use_averages();
    names.push_back(source.directory().string());
    const std::string problem = source.problem(CheckpointReader::Check::sizes);
    require_input(problem.empty(), "{}", problem);
    LoadedConfig own = config_of(source);
    if (configs.empty()) first = own;
    resolve(own.config, 1);
    configs.push_back(std::move(own.config));
  }
  require_same_model(sources, configs);
  const LoadedConfig wanted = converted_config(first, sources[0].header().step, averaging.out, arguments, given);
  const Conversion conversion = convert({.transform = "reset"}, sources[0], first.config, wanted);
  if (given.print_config) {
    print_once(print_config({.config = conversion.resolved, .origin = given.origin}));
    return 0;
  }
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const std::string& unsound = sources[s].header().unsound;
    print_once(fmt::format("averaged   {} (step {}), weight {}{}\n", names[s], sources[s].header().step, weights[s],
                           unsound.empty() ? "" : ", not sound: " + unsound));
  }
  std::vector<TensorLine> lines;
  for (const Recipe& recipe : conversion.recipes) lines.push_back(line_of(recipe));
  print_once(tensor_table(lines));
  if (averaging.dry_run) return 0;
  const auto lock = lock_run_directory(conversion.config, session);
  const std::string title =
      fmt::format("lyceum {}: convert {} {}", program_version(), average, boost::join(names, " "));
  try {
    write_run(averaged_run(conversion, sources, weights), session.world(conversion.config.run.timeout_seconds), title);
  } catch (const Error&) {
    for (const CheckpointReader& source : sources) {
      const std::string problem = source.problem();
      require_input(problem.empty(), "{}", problem);
    }
    throw;
  }
  print_once(fmt::format("written    {0}: lyceum train --config {0}/config.ini continues from it\n", averaging.out));
  return 0;
}

}  // namespace lyceum
