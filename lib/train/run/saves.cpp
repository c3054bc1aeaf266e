#include "train/run/saves.h"

#include <fmt/format.h>

#include "io/text/table.h"

namespace lyceum {

std::string saves_text(const Config& config) {
  const std::int64_t every = config.checkpoint.every;
  const bool by_steps = every > 0 && every < config.run.steps;
  const bool by_time = config.checkpoint.minutes > 0;
  if (!by_steps && !by_time) {
    return "only at the end: a run that is killed loses all its steps; set checkpoint.minutes or checkpoint.every";
  }
  const std::string steps = count_text(every, "step"), time = fmt::format("{:g} min", config.checkpoint.minutes);
  std::string often = "every " + (by_steps ? steps : time);
  std::string most = by_steps ? steps : "about " + time;
  if (by_steps && by_time) {
    often = fmt::format("every {} and every {}", steps, time);
    most = fmt::format("{}, or about {} if that is less", steps, time);
  }
  return fmt::format("{}: a run that is killed loses at most {}", often, most);
}

}  // namespace lyceum
