#include "io/files/gzip.h"

#include <zlib.h>

#include <cstddef>
#include <span>

#include "core/error.h"

namespace lyceum {

namespace {

class Gzip : public Decompressor {
 public:
  Gzip() {
    constexpr int gzip_only = 16;
    require(inflateInit2(&stream_, MAX_WBITS + gzip_only) == Z_OK, "zlib cannot be used");
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  std::size_t read(RawInput& input, std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out == out.size()) {
      if (!within_) skip_zeros(input);
      if (!input.more()) {
        if (within_) fail_truncated(input);
        return 0;
      }
      if (!within_) {
        if (input.buffer[input.begin] != '\x1F') fail_trailing_data(input, input.position(), "gzip");
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
  static void skip_zeros(RawInput& input) {
    while (input.more() && input.buffer[input.begin] == '\0') ++input.begin;
  }

  z_stream stream_{};
  bool within_ = false;  // inside a gzip member
};

}  // namespace

bool begins_gzip(std::string_view beginning) { return beginning.starts_with("\x1F\x8B"); }

std::unique_ptr<Decompressor> make_gzip() { return std::make_unique<Gzip>(); }

}  // namespace lyceum
