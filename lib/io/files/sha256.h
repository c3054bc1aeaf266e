#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

namespace lyceum {

/// Computes the SHA-256 of bytes that are given in several calls of update().
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  /// Adds the next bytes.
  void update(std::span<const std::byte> bytes);
  /// Returns the digest as 64 hexadecimal digits. The object must not be used afterwards.
  std::string finish();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Returns the SHA-256 of `text` as 64 hexadecimal digits.
std::string sha256(std::string_view text);

/// The size of a file in bytes and its SHA-256 as 64 hexadecimal digits.
struct FileDigest {
  std::int64_t bytes = 0;
  std::string sha256;
  bool operator==(const FileDigest&) const = default;
};
/// Computes the digest of a file. Throws a bad_input Error that names the file if it cannot be read, and a failed Error
/// if a stop is requested through `stop`.
FileDigest digest_of_file(const std::filesystem::path& path, const std::stop_token& stop = {});

}  // namespace lyceum
