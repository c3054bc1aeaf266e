#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/tokens/token_formats.h"
#include "io/files/whole_file.h"
#include "support/temporary_directory.h"

namespace lyceum {

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// The contents of a .idx and a .bin, field by field, so that a test can damage one of them. Three sequences of 2, 0
/// and 3 tokens in two documents.
struct Parts {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::uint64_t sequences = 3, documents = 3;
  std::vector<std::int32_t> lengths{2, 0, 3};
  std::vector<std::int64_t> offsets{0, 4, 4};
  std::vector<std::int64_t> boundaries{0, 2, 3};
  std::string bin = std::string("\x05\x00\x01\x02\xFF\xFF\x00\x00\x07\x00", 10);  // 5, 513, 65535, 0, 7

  std::string idx() const {
    std::string bytes = magic;
    put(bytes, version);
    put(bytes, type);
    put(bytes, sequences);
    put(bytes, documents);
    for (const auto value : lengths) put(bytes, value);
    for (const auto value : offsets) put(bytes, value);
    for (const auto value : boundaries) put(bytes, value);
    return bytes;
  }
};

/// Fixture that writes such files in a temporary directory.
class MegatronFiles : public ::testing::Test {
 protected:
  std::string write(const Parts& parts) { return write(parts.bin, parts.idx()); }
  std::string write(const std::string& bin, const std::string& idx) {
    write_whole_file(prefix() + ".bin", bin);
    write_whole_file(prefix() + ".idx", idx);
    return prefix();
  }
  std::string prefix() const { return directory_.path() / "tokens"; }

  void expect_refused(const Parts& parts, const std::vector<std::string>& named) {
    expect_refused(parts.bin, parts.idx(), named);
  }
  void expect_refused(const std::string& bin, const std::string& idx, const std::vector<std::string>& named) {
    write(bin, idx);
    expect_open_refused(named);
  }
  void expect_open_refused(const std::vector<std::string>& named) {
    try {
      open_tokens(prefix());
      FAIL() << "opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      for (const std::string& words : named) EXPECT_THAT(error.what(), ::testing::HasSubstr(words));
    }
  }

  TemporaryDirectory directory_;
};

inline std::vector<std::int32_t> all_tokens(const TokenSource& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

}  // namespace lyceum
