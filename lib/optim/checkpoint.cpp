#include "optim/checkpoint.h"

#include "io/checkpoint/unit_tensors.h"
#include "kernels/tensor_kernels.h"

namespace lyceum {

namespace {

/// Returns e.g. "optimizer/exp_avg/", which precedes the name of a weight.
std::string state_prefix(std::string_view state) { return std::string(optimizer_prefix).append(state) + "/"; }

}  // namespace

std::vector<CheckpointSlice> checkpoint_slices(const Optimizer& optimizer) {
  const auto names = update_rule(optimizer.config()).states;
  std::vector<CheckpointSlice> slices;
  const auto append = [&](const UnitShare& share, std::string_view prefix, const Tensor& values) {
    if (share.unit->twin()) return;
    append_slices(optimizer.stream(), *share.unit, prefix, share.owned, values, share.updated.first, slices);
  };
  for (const UpdatedShare& updated : optimizer.updated()) {
    append(updated.share, "", updated.master);
    for (std::size_t s = 0; s < updated.states.size(); ++s) {
      append(updated.share, state_prefix(names[s]), updated.states[s]);
    }
  }
  for (const UnitShare& share : optimizer.untrained()) append(share, "", share.values);
  return slices;
}

void load_checkpoint(Optimizer& optimizer, const CheckpointReader& reader, const RunOnFiles& read_files) {
  const Stream& stream = optimizer.stream();
  const auto names = update_rule(optimizer.config()).states;
  const bool has_states = reader.has_optimizer_state();
  for (const UpdatedShare& updated : optimizer.updated()) {
    const UnitShare& share = updated.share;
    read_range(reader, stream, *share.unit, "", share.updated, updated.master, read_files);
    for (std::size_t s = 0; s < updated.states.size(); ++s) {
      if (has_states) {
        read_range(reader, stream, *share.unit, state_prefix(names[s]), share.updated, updated.states[s], read_files);
      } else {  // a run that rolls back to this checkpoint must not keep its later states
        clear(stream, updated.states[s]);
      }
    }
    if (updated.master.dtype() != share.values.dtype()) convert(stream, updated.master, share.values);
  }
  for (const UnitShare& share : optimizer.untrained()) {
    read_weights(reader, stream, *share.unit, share.updated, share.values, read_files);
  }
  optimizer.frozen_elements().clear_states(stream, optimizer.updated());
  optimizer.renew_digests();
}

}  // namespace lyceum
