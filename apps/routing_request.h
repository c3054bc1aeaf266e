#pragma once

#include <boost/program_options.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/options.h"

namespace lyceum {

/// The arguments of `lyceum routing report`, `dump` and `difficult`.
struct RoutingRequest {
  std::string action;
  std::filesystem::path file, other;
  std::optional<std::int64_t> from, to;
  bool experts = false, moves = false, help = false;
  std::filesystem::path html, metrics, csv;
  std::string title;
  std::vector<double> thresholds;
  bool layers = false, json = false;
  std::int64_t every = 1;
  std::vector<std::pair<std::int64_t, std::int64_t>> selected_layers;
};

/// Returns the options of these actions, for the help.
boost::program_options::options_description routing_options();

/// Reads the arguments. Throws a usage Error if one is unknown or cannot be read.
RoutingRequest routing_request(const Arguments& arguments);

}  // namespace lyceum
