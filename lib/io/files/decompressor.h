#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// A regular file that is read sequentially, without decompression.
class RawFile {
 public:
  /// Opens the file. Throws a bad_input Error that names the file and the system's reason, as the other functions do.
  explicit RawFile(const std::string& path);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  /// Reads up to out.size() bytes and returns how many it read; 0 only at the end of the file.
  std::size_t read(std::span<char> out);
  /// Continues at byte `to`.
  void seek(std::int64_t to);
  /// Returns the number of bytes that should be read at a time.
  std::size_t buffer_bytes() const;
  const std::string& path() const { return path_; }
  /// The offset of the next byte to read.
  std::int64_t position() const { return position_; }

 private:
  std::string path_;
  int descriptor_;
  std::int64_t position_ = 0;
};

/// A buffered file as the input of a decoder. Bytes [begin, end) of the buffer have been read but not yet decoded.
struct RawInput {
  RawFile& file;
  std::vector<char> buffer = std::vector<char>(file.buffer_bytes());
  std::size_t begin = 0, end = 0;

  /// Fills the buffer from the file if it is empty. Returns false at the end of the file.
  bool more();
  /// The offset in the file of the next byte to decode.
  std::int64_t position() const { return file.position() - static_cast<std::int64_t>(end - begin); }
};

/// Interface of the decoders of compressed files. The table in compressions.cpp lists them.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Decodes bytes of `input` into `out`. Returns the number of bytes written, at least 1 before the end of the data
  /// and 0 at the end. Throws a bad_input Error if the data is damaged or truncated.
  virtual std::size_t read(RawInput& input, std::span<char> out) = 0;
};

/// Throws a bad_input Error: the data at the input's position cannot be decoded, because of `why`.
[[noreturn]] void fail_damaged(const RawInput& input, std::string_view why);
/// Throws a bad_input Error: the bytes from offset `position` on, after the compressed data, are not in the format of
/// `program` (the command that decompresses the data, such as "gzip").
[[noreturn]] void fail_trailing_data(const RawInput& input, std::int64_t position, std::string_view program);
/// Throws a bad_input Error: the file ends within compressed data.
[[noreturn]] void fail_truncated(const RawInput& input);

}  // namespace lyceum
