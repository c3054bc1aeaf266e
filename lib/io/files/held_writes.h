#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace lyceum {

/// Changes of the beginning of a file that are held in memory, in pages, while its bytes on the disk stay as they are.
/// Writes after the beginning go to the disk, so a file that grows needs little memory.
class HeldWrites {
 public:
  static constexpr std::int64_t page_bytes = 256;
  using Page = std::array<std::byte, page_bytes>;

  /// Holds writes to the first `size` bytes of a file, rounded up to whole pages.
  explicit HeldWrites(std::int64_t size = 0) { extend(size); }
  /// Holds writes to the first `size` bytes from now on, rounded up to whole pages. Pages that are held already stay.
  void extend(std::int64_t size);
  /// Returns the number of bytes at the beginning of the file whose changes are held.
  std::int64_t limit() const { return limit_; }

  /// Holds the part of a write at `address` that is below limit(), and returns its length in bytes. Reads the other
  /// bytes of a page from the file `descriptor`. Returns −1, with the reason in errno, if they cannot be read.
  std::int64_t hold(int descriptor, std::int64_t address, std::span<const std::byte> bytes);
  /// Replaces bytes that were read from the disk at `address` by those that are held.
  void replace(std::int64_t address, std::span<std::byte> bytes) const;
  /// Reads a page of a file from the disk. Bytes after its end are 0. Returns false, with the reason in errno, if it
  /// cannot be read.
  static bool read_page(int descriptor, std::int64_t index, Page& page);
  /// Adds a whole page with this index: bytes [index · page_bytes, (index + 1) · page_bytes).
  void add(std::int64_t index, const Page& page) { pages_[index] = page; }
  /// Returns the changed pages by index.
  const std::map<std::int64_t, Page>& pages() const { return pages_; }

  /// The size of the file with its changes, in bytes. Its user sets it.
  std::int64_t end = 0;

 private:
  std::int64_t limit_ = 0;
  std::map<std::int64_t, Page> pages_;
};

}  // namespace lyceum
