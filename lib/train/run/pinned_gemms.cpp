#include "train/run/pinned_gemms.h"

#include <fmt/format.h>

#include "io/files/atomic_file.h"

namespace lyceum {

PinnedGemms::PinnedGemms(const RunConfig& run, const RunSetup& setup, std::filesystem::path file)
    : stream_(setup.stream), world_(setup.mesh.world), file_(std::move(file)) {
  if (run.gemm_choice != GemmChoiceMethod::timed) return;
  device_ = gemm_device(stream_);
  if (device_.empty()) return;
  set_gemm_choice_method(stream_, run.gemm_choice);
  const std::string text = world_.broadcast(world_.rank() == 0 ? read(run.gemm_file) : "", 0);
  pins_ = parse_gemm_file(text, "rank 0's GEMM algorithms");
  pin_gemms(stream_, pins_[device_]);
}

std::string PinnedGemms::read(const std::string& begin_with) {
  const bool own = !file_.empty() && std::filesystem::exists(file_);
  const std::filesystem::path from = own ? file_ : std::filesystem::path(begin_with);
  if (from.empty()) return gemm_file_text({});
  const GemmPins pins = read_gemm_file(from);
  unsaved_ = !own;
  const auto here = pins.find(device_);
  if (here != pins.end()) {
    report_line_ = fmt::format("gemm       {} algorithms from {}", here->second.size(), from.string());
  } else if (!pins.empty()) {
    report_line_ = fmt::format("gemm       algorithms in {} are for {}; for {} they are chosen again", from.string(),
                               pins.begin()->first, device_);
  }
  return gemm_file_text(pins);
}

GemmPins PinnedGemms::fresh() const {
  GemmPins fresh;
  const GemmChoices& known = pins_.at(device_);
  for (const auto& [shape, algorithm] : gemm_choices(stream_)) {
    if (!known.contains(shape)) fresh[device_][shape] = algorithm;
  }
  return fresh;
}

std::string PinnedGemms::agree() {
  if (device_.empty()) return {};
  const GemmPins own = fresh();
  GemmPins added;
  for (const std::string& text : world_.all_gather(own.empty() ? "" : gemm_file_text(own))) {
    if (text.empty()) continue;
    for (const auto& [device, choices] : parse_gemm_file(text, "a rank's GEMM algorithms")) {
      for (const auto& [shape, algorithm] : choices) {
        if (pins_[device].emplace(shape, algorithm).second) added[device][shape] = algorithm;
      }
    }
  }
  if (added.empty()) return {};
  pin_gemms(stream_, pins_.at(device_));
  unsaved_ = true;
  return "gemm       " + choices_text(added);
}

void PinnedGemms::save() {
  if (!unsaved_ || world_.rank() != 0 || file_.empty()) return;
  replace_file(file_, gemm_file_text(pins_));
  unsaved_ = false;
}

}  // namespace lyceum
