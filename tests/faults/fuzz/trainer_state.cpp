#include "support.h"
#include "train/run/run_state.h"

/// Restores the trainer's state from a checkpoint of a model with two mixtures.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::string text(fuzz::text_of(data, size));
  const auto sums = [](MixtureId id) {
    return RoutingSums{.id = id,
                       .top_k = 2,
                       .experts = 4,
                       .counts = std::vector<std::int64_t>(8),
                       .probability = std::vector<double>(4)};
  };
  const std::vector<RoutingSums> expected{sums({1, Site::attention}), sums({1, Site::ffn})};
  fuzz::refused([&] { RunState::load_of(text); });
  fuzz::refused([&] { RunState::placement_of(text); });
  fuzz::refused([&] { RunState::data_of(text); });
  return fuzz::taken_or_refused([&] {
    RunState state;
    state.restore(text, expected);
    state.placement = RunState::placement_of(text);
    state.data = RunState::data_of(text);
    const std::string written = state.text();
    RunState again;
    again.restore(written, expected);
    again.placement = RunState::placement_of(written);
    again.data = RunState::data_of(written);
    fuzz::hold(again.text() == written, "the state of a trainer changes when it is written and read");
  });
}
