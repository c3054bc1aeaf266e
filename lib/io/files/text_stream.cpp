#include "io/files/text_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/files/read_buffer.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

namespace lyceum {

namespace {

constexpr std::int64_t most_buffer_bytes = 1 << 18;

/// The file as it is.
class RawFile {
 public:
  explicit RawFile(const std::string& path) : path_(path), descriptor_(open_regular(path, O_RDONLY, Links::followed)) {
    require_input(descriptor_ >= 0, "{} cannot be opened: {}", path, system_reason(errno));
  }
  ~RawFile() { ::close(descriptor_); }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  /// Up to out.size() bytes; none at the end.
  std::size_t read(std::span<char> out) {
    const ssize_t bytes = uninterrupted([&] { return ::read(descriptor_, out.data(), out.size()); });
    require_input(bytes >= 0, "{} cannot be read at byte {}: {}", path_, position_, system_reason(errno));
    position_ += bytes;
    return static_cast<std::size_t>(bytes);
  }
  void seek(std::int64_t to) {
    require_input(::lseek(descriptor_, to, SEEK_SET) == to, "{} cannot be read at byte {}: {}", path_, to,
                  system_reason(errno));
    position_ = to;
  }
  std::size_t buffer_bytes() const { return read_buffer_bytes(descriptor_, most_buffer_bytes); }
  const std::string& path() const { return path_; }
  std::int64_t position() const { return position_; }

 private:
  std::string path_;
  int descriptor_;
  std::int64_t position_ = 0;
};

/// What a decoder has not taken yet of the file.
struct Input {
  RawFile& file;
  std::vector<char> buffer = std::vector<char>(file.buffer_bytes());
  std::size_t begin = 0, end = 0;

  /// Reads on when all is taken; false at the file's end.
  bool more() {
    if (begin == end) {
      begin = 0;
      end = file.read(buffer);
    }
    return begin < end;
  }
  std::int64_t position() const { return file.position() - static_cast<std::int64_t>(end - begin); }
};

class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Fills `out` from `input`; how much it made. None only at the end.
  virtual std::size_t read(Input& input, std::span<char> out) = 0;
};

[[noreturn]] void fail_damaged(const Input& input, std::string_view why) {
  fail(ExitCode::bad_input, "{} is damaged at byte {}: {}; copy it again", input.file.path(), input.position(), why);
}
[[noreturn]] void fail_behind(const Input& input, std::int64_t position, std::string_view program) {
  fail(ExitCode::bad_input,
       "{0} is damaged at byte {1}: what follows is not {2} data; copy it again, or keep what precedes it: {2} -dc {0}",
       input.file.path(), position, program);
}
[[noreturn]] void fail_cut(const Input& input) {
  fail(ExitCode::bad_input, "{} is truncated: it ends at byte {}, within compressed data; copy it again",
       input.file.path(), input.position());
}

/// One gzip member after another. [RFC 1952] Zeros may follow each, as tapes and Python's gzip have it.
class Gzip : public Decompressor {
 public:
  Gzip() {
    constexpr int gzip_only = 16;
    require(inflateInit2(&stream_, MAX_WBITS + gzip_only) == Z_OK, "zlib cannot be used");
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  std::size_t read(Input& input, std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out == out.size()) {
      if (!within_) skip_zeros(input);
      if (!input.more()) {
        if (within_) fail_cut(input);
        return 0;
      }
      if (!within_) {
        if (input.buffer[input.begin] != '\x1F') fail_behind(input, input.position(), "gzip");
        inflateReset(&stream_);
      }
      within_ = true;
      stream_.next_in = reinterpret_cast<Bytef*>(input.buffer.data() + input.begin);
      stream_.avail_in = static_cast<uInt>(input.end - input.begin);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      input.begin = input.end - stream_.avail_in;
      if (result == Z_STREAM_END) {
        within_ = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        fail_damaged(input, stream_.msg != nullptr ? stream_.msg : "not gzip data");
      }
    }
    return out.size() - stream_.avail_out;
  }

 private:
  static void skip_zeros(Input& input) {
    while (input.more() && input.buffer[input.begin] == '\0') ++input.begin;
  }

  z_stream stream_{};
  bool within_ = false;  // a member has begun and not ended
};

/// One Zstandard frame after another, of which some may be skippable. [RFC 8878]
class Zstandard : public Decompressor {
 public:
  Zstandard() : context_(ZSTD_createDCtx()) {
    require(context_ != nullptr, "zstd cannot be used");
    // The largest window that `zstd -d --long=31` reads; by default it would be 128 MiB.
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }
  ~Zstandard() override { ZSTD_freeDCtx(context_); }
  Zstandard(const Zstandard&) = delete;
  Zstandard& operator=(const Zstandard&) = delete;

  std::size_t read(Input& input, std::span<char> out) override {
    ZSTD_outBuffer made{out.data(), out.size(), 0};
    while (made.pos == 0) {
      // What the context still holds of a frame comes out without input.
      if (!input.more() && !within_) return 0;
      if (!within_) frame_begin_ = input.position();
      ZSTD_inBuffer given{input.buffer.data() + input.begin, input.end - input.begin, 0};
      const std::size_t left = ZSTD_decompressStream(context_, &made, &given);
      input.begin += given.pos;
      if (ZSTD_isError(left) != 0) fail_by(ZSTD_getErrorCode(left), input);
      within_ = left != 0;
      if (made.pos == 0 && within_ && !input.more()) fail_cut(input);
    }
    return made.pos;
  }

 private:
  [[noreturn]] void fail_by(ZSTD_ErrorCode error, const Input& input) const {
    const std::string& path = input.file.path();
    switch (error) {
      case ZSTD_error_prefix_unknown: fail_behind(input, frame_begin_, "zstd");
      case ZSTD_error_dictionary_wrong:
        fail(ExitCode::bad_input, "{} is compressed with a dictionary: decompress it with zstd -d -D DICTIONARY", path);
      case ZSTD_error_frameParameter_windowTooLarge:
        fail(ExitCode::bad_input, "{} is compressed with a window of more than 2 GiB: compress it with zstd --long=31",
             path);
      case ZSTD_error_memory_allocation:
        fail(ExitCode::bad_input,
             "{} is compressed with a larger window than there is memory: compress it without --long or --ultra", path);
      default: fail_damaged(input, ZSTD_getErrorString(error));
    }
  }

  ZSTD_DCtx* context_;
  bool within_ = false;           // a frame has begun and not ended
  std::int64_t frame_begin_ = 0;  // in the file
};

/// A frame of data, or a skippable one, as all files of pzstd begin with.
bool begins_zstd_frame(std::string_view beginning) {
  if (beginning.starts_with("\x28\xB5\x2F\xFD")) return true;
  return beginning.size() >= 4 && beginning[0] >= '\x50' && beginning[0] <= '\x5F' &&
         beginning.substr(1, 3) == "\x2A\x4D\x18";
}

}  // namespace

struct TextStream::Implementation {
  RawFile file;
  Input input{file};
  std::unique_ptr<Decompressor> decompressor;

  explicit Implementation(const std::string& path) : file(path) {
    while (input.end < 4) {
      const std::size_t bytes = file.read(std::span(input.buffer).subspan(input.end));
      if (bytes == 0) break;
      input.end += bytes;
    }
    const std::string_view beginning(input.buffer.data(), input.end);
    if (beginning.starts_with("\x1F\x8B")) decompressor = std::make_unique<Gzip>();
    if (begins_zstd_frame(beginning)) decompressor = std::make_unique<Zstandard>();
  }

  std::size_t read_some(std::span<char> out) {
    if (decompressor) return decompressor->read(input, out);
    if (!input.more()) return 0;
    const std::size_t bytes = std::min(out.size(), input.end - input.begin);
    std::copy_n(input.buffer.data() + input.begin, bytes, out.data());
    input.begin += bytes;
    return bytes;
  }
};

TextStream::TextStream(const std::string& path) : implementation_(std::make_unique<Implementation>(path)) {}
TextStream::~TextStream() = default;
TextStream::TextStream(TextStream&&) noexcept = default;

bool TextStream::compressed() const { return implementation_->decompressor != nullptr; }
std::int64_t TextStream::file_position() const { return implementation_->input.position(); }

std::size_t TextStream::read(std::span<char> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const std::size_t bytes = implementation_->read_some(out.subspan(filled));
    if (bytes == 0) break;
    filled += bytes;
  }
  return filled;
}

void TextStream::skip(std::int64_t bytes) {
  Input& input = implementation_->input;
  if (!compressed()) {
    implementation_->file.seek(input.position() + bytes);
    input.begin = input.end = 0;
    return;
  }
  std::vector<char> left_out(static_cast<std::size_t>(std::clamp<std::int64_t>(bytes, 0, most_buffer_bytes)));
  while (bytes > 0) {
    const auto now = static_cast<std::size_t>(std::min<std::int64_t>(bytes, std::ssize(left_out)));
    if (read(std::span(left_out).first(now)) < now) fail_cut(input);
    bytes -= static_cast<std::int64_t>(now);
  }
}

}  // namespace lyceum
