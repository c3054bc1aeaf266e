#include "io/files/held_writes.h"

#include <unistd.h>

#include <algorithm>

#include "io/files/uninterrupted.h"

namespace lyceum {

bool HeldWrites::read_page(int descriptor, std::int64_t index, Page& page) {
  page.fill(std::byte{0});
  for (std::size_t done = 0; done < page.size();) {
    const off_t at = index * page_bytes + static_cast<off_t>(done);
    const ssize_t got = uninterrupted([&] { return pread(descriptor, page.data() + done, page.size() - done, at); });
    if (got < 0) return false;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

void HeldWrites::extend(std::int64_t size) { limit_ = (size + page_bytes - 1) / page_bytes * page_bytes; }

std::int64_t HeldWrites::hold(int descriptor, std::int64_t address, std::span<const std::byte> bytes) {
  const std::int64_t count = std::clamp<std::int64_t>(limit_ - address, 0, std::ssize(bytes));
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t index = (address + done) / page_bytes, within = (address + done) % page_bytes;
    const std::int64_t part = std::min(page_bytes - within, count - done);
    auto found = pages_.find(index);
    if (found == pages_.end()) {
      Page page;
      if (part < page_bytes && !read_page(descriptor, index, page)) return -1;
      found = pages_.emplace(index, page).first;
    }
    std::copy_n(bytes.begin() + done, part, found->second.begin() + within);
    done += part;
  }
  return count;
}

void HeldWrites::replace(std::int64_t address, std::span<std::byte> bytes) const {
  const std::int64_t end_address = std::min(address + std::ssize(bytes), limit_);
  for (auto page = pages_.lower_bound(address / page_bytes);
       page != pages_.end() && page->first * page_bytes < end_address; ++page) {
    const std::int64_t begin = page->first * page_bytes;
    const std::int64_t from = std::max(begin, address), to = std::min(begin + page_bytes, end_address);
    std::copy(page->second.begin() + (from - begin), page->second.begin() + (to - begin),
              bytes.begin() + (from - address));
  }
}

}  // namespace lyceum
