#include "train/run_state.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lyceum {

namespace {

using Json = nlohmann::ordered_json;

bool same_layers(const std::vector<RoutingSums>& a, const std::vector<RoutingSums>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const RoutingSums& x, const RoutingSums& y) {
    return x.layer == y.layer && x.top_k == y.top_k && x.experts == y.experts &&
           x.counts.size() == static_cast<std::size_t>(x.top_k * x.experts) &&
           x.probability.size() == static_cast<std::size_t>(x.experts);
  });
}

}  // namespace

void RunState::add_routing(const std::vector<RoutingSums>& sums, std::int64_t tokens) {
  if (sums.empty()) return;
  routing_tokens += tokens;
  if (routing.empty()) {
    routing = sums;
    return;
  }
  for (std::size_t layer = 0; layer < sums.size(); ++layer) {
    RoutingSums& sum = routing[layer];
    for (std::size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += sums[layer].counts[i];
    for (std::size_t i = 0; i < sum.probability.size(); ++i) sum.probability[i] += sums[layer].probability[i];
  }
}

void RunState::clear_routing() {
  routing.clear();
  routing_tokens = 0;
}

std::string RunState::text() const {
  Json layers = Json::array();
  for (const RoutingSums& sums : routing) {
    layers.push_back({{"layer", sums.layer},
                      {"top_k", sums.top_k},
                      {"experts", sums.experts},
                      {"counts", sums.counts},
                      {"probability", sums.probability}});
  }
  return Json{{"updates", updates},
              {"samples", samples},
              {"skipped", skipped},
              {"skipped_in_a_row", skipped_in_a_row},
              {"routing_tokens", routing_tokens},
              {"routing", layers}}
      .dump();
}

void RunState::restore(const std::string& text, const std::vector<RoutingSums>& expected) {
  try {
    const Json state = Json::parse(text);
    updates = state.at("updates");
    samples = state.at("samples");
    skipped = state.at("skipped");
    skipped_in_a_row = state.at("skipped_in_a_row");
    routing_tokens = state.at("routing_tokens");
    routing.clear();
    for (const Json& sums : state.at("routing")) {
      routing.push_back({.layer = sums.at("layer"),
                         .top_k = sums.at("top_k"),
                         .experts = sums.at("experts"),
                         .counts = sums.at("counts"),
                         .probability = sums.at("probability")});
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::bad_input, "the checkpoint's trainer state cannot be read: {}", error.what());
  }
  require_input(
      routing.empty() || same_layers(routing, expected),
      "the checkpoint counts the routing of another mixture: set moe.top_k and moe.experts as it was made with");
}

}  // namespace lyceum
