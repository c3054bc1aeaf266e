#include "io/files/zstandard.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"

namespace lyceum {

namespace {

class Zstandard : public Decompressor {
 public:
  Zstandard() : context_(ZSTD_createDCtx()) {
    require(context_ != nullptr, "zstd cannot be used");
    // Accepts windows as large as `zstd -d --long=31` does. The default limit is 128 MiB.
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }
  ~Zstandard() override { ZSTD_freeDCtx(context_); }
  Zstandard(const Zstandard&) = delete;
  Zstandard& operator=(const Zstandard&) = delete;

  std::size_t read(RawInput& input, std::span<char> out) override {
    ZSTD_outBuffer made{out.data(), out.size(), 0};
    while (made.pos == 0) {
      // The context may still have output of a frame, which it returns without further input.
      if (!input.more() && !within_) return 0;
      if (!within_) frame_begin_ = input.position();
      ZSTD_inBuffer given{input.buffer.data() + input.begin, input.end - input.begin, 0};
      const std::size_t left = ZSTD_decompressStream(context_, &made, &given);
      input.begin += given.pos;
      if (ZSTD_isError(left) != 0) fail_by(ZSTD_getErrorCode(left), input);
      within_ = left != 0;
      if (made.pos == 0 && within_ && !input.more()) fail_truncated(input);
    }
    return made.pos;
  }

 private:
  [[noreturn]] void fail_by(ZSTD_ErrorCode error, const RawInput& input) const {
    const std::string& path = input.file.path();
    switch (error) {
      case ZSTD_error_prefix_unknown: fail_trailing_data(input, frame_begin_, "zstd");
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
  bool within_ = false;           // inside a frame
  std::int64_t frame_begin_ = 0;  // offset of the frame in the file
};

}  // namespace

bool begins_zstandard(std::string_view beginning) {
  if (beginning.starts_with("\x28\xB5\x2F\xFD")) return true;
  return beginning.size() >= 4 && beginning[0] >= '\x50' && beginning[0] <= '\x5F' &&
         beginning.substr(1, 3) == "\x2A\x4D\x18";
}

std::unique_ptr<Decompressor> make_zstandard() { return std::make_unique<Zstandard>(); }

}  // namespace lyceum
