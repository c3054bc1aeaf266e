#include "io/files/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/files/read_buffer.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

namespace lyceum {

struct Sha256::Implementation {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Sha256::Sha256() : implementation_(std::make_unique<Implementation>()) {
  require(EVP_DigestInit_ex(implementation_->context.get(), EVP_sha256(), nullptr) == 1,
          "OpenSSL cannot compute SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(implementation_->context.get(), bytes.data(), bytes.size()) == 1,
          "OpenSSL cannot compute SHA-256");
}

std::string Sha256::finish() {
  std::array<unsigned char, 32> digest{};
  require(EVP_DigestFinal_ex(implementation_->context.get(), digest.data(), nullptr) == 1,
          "OpenSSL cannot compute SHA-256");
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.finish();
}

FileDigest digest_of_file(const std::filesystem::path& path, const std::stop_token& stop) {
  const int descriptor = open_regular(path, O_RDONLY, Links::followed);
  require_input(descriptor >= 0, "{}: cannot open: {}", path.string(), system_reason(errno));
  const auto close = [](const int* d) { ::close(*d); };
  const std::unique_ptr<const int, decltype(close)> closer(&descriptor, close);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  Sha256 hash;
  FileDigest digest;
  std::vector<std::byte> buffer(read_buffer_bytes(descriptor, 1 << 20));
  while (true) {
    require(!stop.stop_requested(), "{}: stopped on request", path.string());
    const ssize_t got = uninterrupted([&] { return ::read(descriptor, buffer.data(), buffer.size()); });
    require_input(got >= 0, "{}: cannot read: {}", path.string(), system_reason(errno));
    if (got == 0) break;
    hash.update(std::span(buffer).first(static_cast<std::size_t>(got)));
    digest.bytes += got;
  }
  digest.sha256 = hash.finish();
  return digest;
}

}  // namespace lyceum
