#include "plan/nccl_memory.h"

#include <algorithm>
#include <bit>

namespace lyceum {

namespace {

/// Bytes of the three protocols (LL, LL128, Simple) for one channel and one rank to receive from.
constexpr double connection = 8.0 * 512 * 8 * 16 + 120.0 * 640 * 8 * 8 + (1 << 22);
/// Bytes of reductions in the NVLink switch for one channel and one rank: 8 steps of 128 KiB in either direction.
constexpr double switched = 2.0 * 8 * (128 << 10);
constexpr int most_in_switch = 8;  // GPUs of a machine

/// Returns the bytes of a communicator of `ranks` ranks that is used for `transfer`.
double communicator_bytes(Transfer transfer, int ranks, int channels) {
  const double neighbours = std::min(ranks - 1, 2), pairwise = std::bit_ceil(static_cast<unsigned>(channels));
  switch (transfer) {
    case Transfer::all_to_all: return connection * pairwise * (ranks - 1);
    case Transfer::send: return connection * pairwise * neighbours;
    default: break;
  }
  return channels * (connection * neighbours + (ranks > 2 ? switched * std::min(ranks, most_in_switch) : 0));
}

}  // namespace

double nccl_bytes(const Config& config, const MeshRank& mesh_rank, const Traffic& traffic, bool on_gpus) {
  const ParallelConfig& parallel = config.parallel;
  const bool by_nccl =
      parallel.transport != TransportKind::staged && (on_gpus || config.run.device == DeviceKind::cuda);
  if (parallel.nccl_channels == 0 || !by_nccl) return 0;
  double bytes = 0;
  for (std::size_t a = 0; a < axis_names.size(); ++a) {
    for (std::size_t t = 0; t < transfer_names.size(); ++t) {
      const auto axis = static_cast<Axis>(a);
      const auto transfer = static_cast<Transfer>(t);
      if (traffic.of(axis, transfer).bytes == 0) continue;
      bytes += communicator_bytes(transfer, mesh_rank.size(axis), parallel.nccl_channels);
    }
  }
  return bytes;
}

}  // namespace lyceum
