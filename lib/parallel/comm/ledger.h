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

/// One operation that a rank handed to a group. Plain memory, since other processes of the machine read it.
struct LedgerEntry {
  std::uint64_t group = 0;          // one number on all members of a group, and on no other group of the job
  std::int64_t index = -1;          // among the group's operations; a message: among those of its two ranks, that way
  std::int64_t size = 0;            // bytes that all ranks must agree on, see ProcessGroup; all_to_all: of a row
  std::int64_t bytes = 0;           // that this rank hands over, as ProcessGroup::Traffic counts them
  std::int32_t from = -1, to = -1;  // a message: between which ranks of the job
  std::int32_t members = 0, place = 0;  // ranks of the group, and this one's rank in it
  std::int32_t line = 0;
  double started = 0, finished = 0;  // seconds of this machine's monotonic clock; 0: not yet
  std::array<char, 32> group_name{};
  std::array<char, 16> operation{};
  std::array<char, 40> file{};  // of the call, without folders

  bool message() const { return from >= 0; }
  /// Whether two ranks' entries at the same place of one sequence belong together.
  bool fits(const LedgerEntry& other) const;
  /// "all_reduce #812 of 4096 B on group data (step.cpp:47)"
  std::string text() const;
};

/// A rank's last operations, and how far it came on each of its groups.
struct LedgerPage {
  static constexpr std::size_t entries = 64, groups = 64;
  struct Position {
    std::uint64_t group;   // 0: free
    std::int64_t started;  // operations so far, without messages
  };

  std::int32_t rank = -1, process = 0;  // of the job; of Linux
  std::uint64_t process_space = 0;      // see process_space()
  char state = '?';             // of the process, as Linux says it, when the page was copied: T stopped, 0 gone, …
  double copied = 0;            // when, on the clock of its machine
  std::int64_t noted = 0;       // entries so far; number n is in ring[n % entries]
  std::int64_t waits_for = -1;  // the number of the entry that the rank waits for
  std::array<LedgerEntry, entries> ring{};
  std::array<Position, groups> positions{};

  /// The entry of that number; null when it is no longer, or not yet, there.
  const LedgerEntry* entry(std::int64_t number) const;
  /// What the rank waits for; null where it does not wait.
  const LedgerEntry* waiting() const { return waits_for < 0 ? nullptr : entry(waits_for); }
  /// The entry at the same place of the sequence as `other`, of another rank.
  const LedgerEntry* counterpart(const LedgerEntry& other) const;
  /// Operations that the rank started on a group; −1 where it is no member of it.
  std::int64_t started(std::uint64_t group) const;
};

/// Writes a rank's page: a few dozen nanoseconds an operation. One thread.
class Ledger {
 public:
  using Listener = std::function<void(const LedgerEntry&)>;
  Ledger() : page_(std::make_shared<LedgerPage>()) {}
  /// From now on on this page, which others may see, as that of `rank` and this process.
  void move_to(std::shared_ptr<LedgerPage> page, int rank);

  const LedgerPage& page() const { return *page_; }
  /// A place for a group's position, or none where all are taken: then only its entries are known.
  int join(std::uint64_t group);
  void leave(int place);
  /// Notes the start of an operation; gives its number.
  std::int64_t start(const LedgerEntry& entry, int place);
  void finish(std::int64_t number);
  void wait_for(std::int64_t number) { page_->waits_for = number; }
  /// Hears of every operation from its start; none: nobody does.
  void listen(Listener listener) { listener_ = std::move(listener); }

 private:
  std::shared_ptr<LedgerPage> page_;
  Listener listener_;
};

/// Seconds, the same for all processes of a machine.
double monotonic_seconds();
/// `text`, cut to what fits.
template <std::size_t size>
void put(std::array<char, size>& field, std::string_view text) {
  field.fill('\0');
  text.copy(field.data(), size - 1);
}
std::string_view file_of(const std::source_location& where);

}  // namespace lyceum
