#include "parallel/comm/ledger.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "core/error.h"
#include "parallel/comm/process_state.h"

namespace lyceum {

bool LedgerEntry::fits(const LedgerEntry& other) const {
  return size == other.size && (message() || operation == other.operation);
}

std::string LedgerEntry::text() const {
  const std::string peers = message() ? format_message(" from rank {} to {}", {from, to}) : "";
  return format_message("{} #{} of {} B{} on group {} ({}:{})",
                        {operation.data(), index, size, peers, group_name.data(), file.data(), line});
}

const LedgerEntry* LedgerPage::entry(std::int64_t number) const {
  const bool there = number >= 0 && number < noted && number >= noted - static_cast<std::int64_t>(entries);
  return there ? &ring[static_cast<std::size_t>(number) % entries] : nullptr;
}

const LedgerEntry* LedgerPage::counterpart(const LedgerEntry& other) const {
  for (std::int64_t number = noted; number-- > 0;) {
    const LedgerEntry* own = entry(number);
    if (!own) break;
    if (own->group == other.group && own->index == other.index && own->from == other.from && own->to == other.to) {
      return own;
    }
  }
  return nullptr;
}

std::int64_t LedgerPage::started(std::uint64_t group) const {
  const auto position = std::ranges::find(positions, group, &Position::group);
  return position == positions.end() ? -1 : position->started;
}

void Ledger::move_to(std::shared_ptr<LedgerPage> page, int rank) {
  *page = *page_;
  page->process_space = process_space();
  page->process = getpid();
  page->rank = rank;
  page_ = std::move(page);
}

int Ledger::join(std::uint64_t group) {
  const auto position = std::ranges::find(page_->positions, std::uint64_t{0}, &LedgerPage::Position::group);
  if (position == page_->positions.end()) return -1;
  *position = {group, 0};
  return static_cast<int>(position - page_->positions.begin());
}

void Ledger::leave(int position) {
  if (position >= 0) page_->positions[static_cast<std::size_t>(position)] = {0, 0};
}

std::int64_t Ledger::start(const LedgerEntry& entry, int position) {
  LedgerEntry& noted = page_->ring[static_cast<std::size_t>(page_->noted) % LedgerPage::entries];
  noted = entry;
  noted.started = monotonic_seconds();
  noted.finished = 0;
  if (position >= 0 && !entry.message()) page_->positions[static_cast<std::size_t>(position)].started = entry.index + 1;
  if (listener_) listener_(noted);
  if (observer_) observer_->on_start(page_->noted, noted);
  return page_->noted++;
}

void Ledger::finish(std::int64_t number) {
  if (page_->entry(number)) {
    page_->ring[static_cast<std::size_t>(number) % LedgerPage::entries].finished = monotonic_seconds();
  }
  if (observer_) observer_->on_finish(number);
}

double monotonic_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string_view file_of(const std::source_location& where) {
  const std::string_view path = where.file_name();
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace lyceum
