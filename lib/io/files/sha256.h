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

/// SHA-256 of bytes that come in parts.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(std::span<const std::byte> bytes);
  /// 64 hexadecimal digits; ends the object's use.
  std::string finish();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

std::string sha256(std::string_view text);

struct FileDigest {
  std::int64_t bytes = 0;
  std::string sha256;
  bool operator==(const FileDigest&) const = default;
};
/// Reads the whole file. Throws a bad_input Error that names the file when it cannot be read, and a failed one when it
/// is asked to stop.
FileDigest digest_of_file(const std::filesystem::path& path, const std::stop_token& stop = {});

}  // namespace lyceum
