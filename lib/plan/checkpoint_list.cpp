#include "plan/checkpoint_list.h"

#include <cstddef>
#include <string_view>

#include "io/checkpoint/contents.h"
#include "io/checkpoint/manifest.h"
#include "model/model_tensors.h"
#include "optim/weight_rule.h"

namespace lyceum {

namespace {

/// Returns the bytes that an allocation of `bytes` bytes takes in the allocator of the C library.
double allocated(std::size_t bytes) { return static_cast<double>((bytes + 8 + 15) / 16 * 16); }

void add(CheckpointList& list, std::size_t name_bytes) {
  ++list.tensors;
  const double entry =
      static_cast<double>(sizeof(StoredTensor)) + allocated(name_bytes + 1) + allocated(sizeof(StoredSlice));
  list.resuming_bytes += entry + static_cast<double>(sizeof(StoredTensor));  // moved when the list grows
  // While a checkpoint is saved, a rank's description of its slices is in memory twice, and then the text of the
  // manifest. Both have a line of numbers beside the name.
  constexpr double numbers = 85;
  list.saving_bytes += entry + 3 * (static_cast<double>(name_bytes) + numbers);
}

}  // namespace

CheckpointList checkpoint_list(const Config& config) {
  CheckpointList list;
  const RuleAssignment rules(config.optim);
  for (const ModelTensor& tensor : model_tensors(config)) {
    add(list, tensor.name.size());
    if (tensor.buffer) continue;
    for (const std::string_view state : states_of(rules.rule_of(tensor.name, tensor.shape))) {
      add(list, optimizer_prefix.size() + state.size() + 1 + tensor.name.size());
    }
    if (config.optim.ema > 0) add(list, average_prefix.size() + tensor.name.size());
  }
  return list;
}

}  // namespace lyceum
