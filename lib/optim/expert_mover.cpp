#include "optim/expert_mover.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "core/copy.h"
#include "core/error.h"
#include "kernels/tensor_kernels.h"
#include "parallel/expert/rebalance.h"

namespace lyceum {

namespace {

/// A tensor of an optimizer that has elements of a unit: all elements of its updated range, or some ranges of it.
struct UnitTensor {
  struct Part {
    Range range;  // of the unit
    Tensor values;
  };
  DType type;
  std::vector<Part> parts;  // in order

  /// Calls f(values) for the memory of each part of a range of the unit, in order.
  template <class F>
  void for_each(const Range& range, const F& f) const {
    for (const Part& part : parts) {
      const Range both = common(part.range, range);
      if (both.count > 0) f(part.values.slice(both.first - part.range.first, both.count));
    }
  }
};

/// Returns the tensors that move with experts. All ranks have the same ones in one order.
std::vector<UnitTensor> tensors_of(const UpdatedShare& updated) {
  const Range& all = updated.share.updated;
  std::vector<UnitTensor> tensors{{updated.master.dtype(), {{all, updated.master}}}};
  for (std::size_t s = 0; s < updated.states.size(); ++s) {
    UnitTensor& state = tensors.emplace_back(UnitTensor{updated.states[s].dtype(), {}});
    for (const UpdatedShare::Part& part : updated.parts) {
      if (s < part.states.size()) state.parts.push_back({part.range, part.states[s]});
    }
  }
  if (updated.average.defined()) tensors.push_back({updated.average.dtype(), {{all, updated.average}}});
  return tensors;
}

const UpdatedShare& share_of(const Optimizer& optimizer, const ParameterUnit& unit) {
  for (const UpdatedShare& updated : optimizer.updated()) {
    if (updated.share.unit == &unit) return updated;
  }
  fail(ExitCode::failed, "{} is not a trained unit, so its experts cannot move", unit.name());
}

/// The memory of one exchange of a tensor, with its elements by rank of the group.
struct Message {
  Message(const UnitTensor& tensor, std::span<const ExpertTransfer> transfers, int ranks)
      : counts(static_cast<std::size_t>(ranks)) {
    for (const ExpertTransfer& transfer : transfers) {
      tensor.for_each(transfer.range,
                      [&](const Tensor& part) { counts[static_cast<std::size_t>(transfer.peer)] += part.size(); });
    }
  }
  void allocate(const Stream& stream, DType type) {
    values = Tensor::empty(stream, type, {std::reduce(counts.begin(), counts.end())});
  }
  std::vector<std::int64_t> counts;  // [ranks]
  Tensor values;
};

/// Exchanges the transfers of one tensor. Collective over the group.
void exchange(const Stream& stream, const ProcessGroup& group, const UnitTensor& tensor,
              const ExpertTransfers& transfers) {
  Message sent(tensor, transfers.sent, group.size()), received(tensor, transfers.received, group.size());
  sent.allocate(stream, tensor.type);
  received.allocate(stream, tensor.type);
  std::int64_t next = 0;
  for (const ExpertTransfer& transfer : transfers.sent) {
    tensor.for_each(transfer.range, [&](const Tensor& part) {
      const Tensor to = sent.values.slice(std::exchange(next, next + part.size()), part.size());
      copy_on_device(stream, to.raw(), part.raw(), part.bytes());
    });
  }
  const auto row_bytes = static_cast<std::int64_t>(size_of(tensor.type));
  group
      .all_to_all_async({.sent = sent.values.raw(),
                         .send_rows = sent.counts,
                         .received = received.values.raw(),
                         .receive_rows = received.counts,
                         .row_bytes = row_bytes,
                         .owner = std::make_shared<std::pair<Tensor, Tensor>>(sent.values, received.values)},
                        {std::source_location::current(), row_bytes})
      .wait();
  next = 0;
  for (const ExpertTransfer& transfer : transfers.received) {
    tensor.for_each(transfer.range, [&](const Tensor& part) {
      const Tensor from = received.values.slice(std::exchange(next, next + part.size()), part.size());
      copy_on_device(stream, part.raw(), from.raw(), part.bytes());
    });
  }
}

/// Returns the largest number of experts that leave one rank. As many enter it.
std::int64_t most_leaving(const Placement& before, std::span<const std::int32_t> moved) {
  std::vector<std::int64_t> leaving(static_cast<std::size_t>(before.ranks()));
  for (const std::int32_t e : moved) ++leaving[static_cast<std::size_t>(before.owner[static_cast<std::size_t>(e)])];
  return std::ranges::max(leaving);
}

}  // namespace

ProcessGroup new_mover_group(const Mesh& mesh) {
  return mesh.data_tensor.split([etp = mesh.shape.expert_tensor](int rank) { return rank % etp; }, "moved experts");
}

ExpertMover::ExpertMover(const Mesh& mesh, Stream stream, std::int64_t round_bytes)
    : stream_(std::move(stream)),
      group_(new_mover_group(mesh)),
      copies_(mesh.expert_data.size()),
      round_bytes_(round_bytes) {}

ExpertMemory ExpertMover::memory_of(const UpdatedShare& updated, const Move& move) const {
  const int own = group_.rank() % move.before.ranks();
  require(slot_offsets(move.before, own, move.slot_elements).back() == move.unit.size(),
          "{} has {} elements, which are not those of the slots of its experts", move.unit.name(), move.unit.size());
  return {.elements = move.slot_elements, .copies = copies_, .sharded = updated.share.sharded};
}

void ExpertMover::move(const Optimizer& optimizer, const Move& move) const {
  const std::vector<std::int32_t> moved = moved_experts(move.before, move.after);
  if (moved.empty()) return;
  const UpdatedShare& updated = share_of(optimizer, move.unit);
  const ExpertMemory memory = memory_of(updated, move);
  const std::vector<UnitTensor> tensors = tensors_of(updated);
  std::int64_t largest = 0;
  for (const std::int32_t e : moved) largest = std::max(largest, move.slot_elements[static_cast<std::size_t>(e)]);
  const auto widest = static_cast<std::int64_t>(size_of(updated.master.dtype()));
  const std::int64_t step = std::max<std::int64_t>(1, round_bytes_ / (widest * most_leaving(move.before, moved)));
  for (std::int64_t first = 0; first < largest; first += step) {
    const ExpertTransfers transfers = expert_transfers(move.before, move.after, memory, group_.rank(), {first, step});
    for (const UnitTensor& tensor : tensors) exchange(stream_, group_, tensor, transfers);
  }
  if (updated.master.dtype() != updated.share.values.dtype()) {
    convert(stream_, updated.master, updated.share.values);
  }
}

std::int64_t ExpertMover::bytes_sent(const Optimizer& optimizer, const Move& move) const {
  const UpdatedShare& updated = share_of(optimizer, move.unit);
  const ExpertTransfers transfers = expert_transfers(move.before, move.after, memory_of(updated, move), group_.rank(),
                                                     {0, std::ranges::max(move.slot_elements)});
  std::int64_t bytes = 0;
  for (const UnitTensor& tensor : tensors_of(updated)) {
    for (const ExpertTransfer& transfer : transfers.sent) {
      tensor.for_each(transfer.range, [&](const Tensor& part) { bytes += static_cast<std::int64_t>(part.bytes()); });
    }
  }
  return bytes;
}

}  // namespace lyceum
