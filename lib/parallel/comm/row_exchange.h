#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/comm/pending_state.h"

namespace lyceum {

/// An all-to-all of rows of one or several tensors in host memory, over MPI. A tensor's rows for a rank are one
/// message. If a rank gets at most packed_bytes() of several tensors each, these are packed into one message instead:
/// copying them takes less time than another message. Both sides know all sizes, so they pack the same tensors.
/// Receives are started first. Messages between two ranks keep their order, so exchanges that all ranks start in the
/// same order match, even if several are in flight. Ranks with nothing to send or receive start the operation too, so
/// that operation numbers in the ledger agree.
class RowExchange final : public Messages {
 public:
  /// Returns the limit in a group of `ranks` ranks: 16 KiB, or less in a group of more than 512 ranks, so that all
  /// packed messages of a rank together take at most 8 MiB per tensor and direction.
  static constexpr std::int64_t packed_bytes(std::int64_t ranks) {
    return std::min(std::int64_t{16} << 10, (std::int64_t{8} << 20) / ranks);
  }

  /// The exchanges must fit the group (require_fitting()).
  RowExchange(std::shared_ptr<Communicator> communicator, const Operation& operation,
              std::span<const ProcessGroup::AllToAll> exchanges);

 private:
  /// Rows of several tensors from one rank, in one message.
  struct Packed {
    std::vector<std::byte> message;
    std::vector<std::span<std::byte>> rows;  // where they belong, in the order of the message
  };
  bool next() override;

  std::vector<Packed> received_;
  std::vector<std::vector<std::byte>> sent_;
};

/// Returns the number of messages that rank `rank` sends in an exchange. Rows of more than 1 GiB for one rank count as
/// one message.
std::int64_t messages_of_exchange(int rank, std::span<const ProcessGroup::AllToAll> exchanges);

}  // namespace lyceum
