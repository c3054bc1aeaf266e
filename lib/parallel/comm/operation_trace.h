#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "parallel/comm/ledger.h"

namespace lyceum {

/// Records all operations of a rank on its groups, and its waits for them, while it exists. Times are of
/// monotonic_seconds(). With NCCL, an operation ends when the host notices that the device has completed it.
class OperationTrace final : public LedgerObserver {
 public:
  /// An operation. `entry.finished` is 0 if it has not ended yet.
  struct Record {
    std::int64_t number = 0;
    LedgerEntry entry;
  };
  /// An interval in which the host waited for an operation.
  struct Wait {
    std::int64_t number = 0;  // of the operation
    double begin = 0, end = 0;
  };

  /// Replaces the observer of `ledger`, which must outlive this.
  explicit OperationTrace(Ledger& ledger) : ledger_(ledger) { ledger_.observe(this); }
  ~OperationTrace() override { ledger_.observe(nullptr); }
  OperationTrace(const OperationTrace&) = delete;
  OperationTrace& operator=(const OperationTrace&) = delete;

  /// Returns the operations in the order in which they started, and the waits in order; waits do not overlap.
  const std::vector<Record>& operations() const { return operations_; }
  const std::vector<Wait>& waits() const { return waits_; }

  /// Between pause() and resume(), new operations and waits are not recorded. Ends of recorded operations are.
  void pause();
  void resume() { paused_ = false; }

  void on_start(std::int64_t number, const LedgerEntry& entry) override;
  void on_finish(std::int64_t number) override;
  void on_wait(std::int64_t number) override;

 private:
  Ledger& ledger_;
  std::vector<Record> operations_;
  std::vector<Wait> waits_;
  std::unordered_map<std::int64_t, std::size_t> pending_;  // index of each operation that has not ended
  std::optional<Wait> current_;                            // the wait in progress
  bool paused_ = false;
};

}  // namespace lyceum
