#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>

namespace lyceum {

/// An operation that a rank has started on a group. Trivially copyable, since other processes of the machine read it.
struct LedgerEntry {
  std::uint64_t group = 0;  // identity of the group: the same on all its members, and unique in the job
  /// Number among the collective operations of the group, or among its messages with the same from and to
  std::int64_t index = -1;
  std::int64_t size = 0;            // bytes on which all ranks must agree (all_to_all: of a row of every tensor)
  std::int64_t bytes = 0;           // bytes that this rank passes, as counted by ProcessGroup::Traffic
  std::int32_t from = -1, to = -1;  // messages only: sender and receiver, as ranks of the job
  std::int32_t members = 0, group_rank = 0;  // size of the group, and this rank's rank in it
  std::int32_t line = 0;
  double started = 0, finished = 0;  // seconds on this machine's monotonic clock; 0: not yet
  std::array<char, 32> group_name{};
  std::array<char, 16> operation{};
  std::array<char, 40> file{};  // source file of the call, without directories

  /// True for a send or receive, false for a collective operation.
  bool message() const { return from >= 0; }
  /// True if this entry and another rank's entry with the same group, index, from and to can belong to one operation.
  bool fits(const LedgerEntry& other) const;
  /// Returns e.g. "all_reduce #812 of 4096 B on group data (step.cpp:47)".
  std::string text() const;
};

/// The memory of one rank's ledger: its last 64 operations in a ring, and the number of collective operations that it
/// has started on each of its groups.
struct LedgerPage {
  static constexpr std::size_t entries = 64, groups = 64;
  struct Position {
    std::uint64_t group;   // 0: free
    std::int64_t started;  // number of collective operations
  };

  std::int32_t rank = -1, process = 0;  // rank in the job, and process id
  std::uint64_t process_space = 0;      // see process_space()
  char state = '?';                     // state of the process when the page was copied, see process_state()
  double copied = 0;                    // time of the copy, on the clock of its machine
  std::int64_t noted = 0;               // number of entries recorded; entry n is ring[n % entries]
  std::int64_t waits_for = -1;          // number of the entry that the rank is waiting for; -1: none
  std::array<LedgerEntry, entries> ring{};
  std::array<Position, groups> positions{};

  /// Returns the entry with this number; null if it has been overwritten or does not exist yet.
  const LedgerEntry* entry(std::int64_t number) const;
  /// Returns the entry that the rank is waiting for; null if it is not waiting or the entry has been overwritten.
  const LedgerEntry* waiting() const { return waits_for < 0 ? nullptr : entry(waits_for); }
  /// Returns the entry that corresponds to `other`, an entry of another rank; null if there is none.
  const LedgerEntry* counterpart(const LedgerEntry& other) const;
  /// Returns the number of collective operations that the rank has started on a group; -1 if it is not a member.
  std::int64_t started(std::uint64_t group) const;
};

/// Receives the events that a Ledger records.
class LedgerObserver {
 public:
  virtual ~LedgerObserver() = default;
  /// An operation has started. `number`: of its entry.
  virtual void on_start(std::int64_t number, const LedgerEntry& entry) = 0;
  /// The operation of that entry has ended.
  virtual void on_finish(std::int64_t number) = 0;
  /// The rank waits for the operation of that entry from now on; -1: it no longer waits.
  virtual void on_wait(std::int64_t number) = 0;
};

/// Records the operations of one rank in a LedgerPage. A record costs a few dozen nanoseconds. Not thread-safe.
class Ledger {
 public:
  using Listener = std::function<void(const LedgerEntry&)>;
  Ledger() : page_(std::make_shared<LedgerPage>()) {}
  /// Copies the current page to `page`, as that of `rank` and this process, and continues there. `page` may be in
  /// memory that other processes read.
  void move_to(std::shared_ptr<LedgerPage> page, int rank);

  const LedgerPage& page() const { return *page_; }
  /// Reserves an element of LedgerPage::positions for a group. Returns its index, or -1 if all are in use; then only
  /// the group's entries are recorded.
  int join(std::uint64_t group);
  /// Releases that element, when the group is destroyed.
  void leave(int position);
  /// Records the start of an operation and returns the number of its entry. `position`: the result of join().
  std::int64_t start(const LedgerEntry& entry, int position);
  /// Records the end of the operation with this entry, unless the entry has been overwritten.
  void finish(std::int64_t number);
  /// Records that the rank waits for the operation with this entry; -1: it does not wait.
  void wait_for(std::int64_t number) {
    page_->waits_for = number;
    if (observer_) observer_->on_wait(number);
  }
  /// Sets a function that is called with every entry at its start; an empty function removes it.
  void listen(Listener listener) { listener_ = std::move(listener); }
  /// Sets an observer, which must outlive this or be replaced by null.
  void observe(LedgerObserver* observer) { observer_ = observer; }

 private:
  std::shared_ptr<LedgerPage> page_;
  Listener listener_;
  LedgerObserver* observer_ = nullptr;
};

/// Returns the monotonic time in seconds, on a clock that all processes of a machine share.
double monotonic_seconds();
/// Copies `text` to `field`, truncated to its size and terminated by zeros.
template <std::size_t size>
void put(std::array<char, size>& field, std::string_view text) {
  field.fill('\0');
  text.copy(field.data(), size - 1);
}
/// Returns the file name without directories.
std::string_view file_of(const std::source_location& where);

}  // namespace lyceum
