#include "io/files/decompressor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/files/read_buffer.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

namespace lyceum {

RawFile::RawFile(const std::string& path) : path_(path), descriptor_(open_regular(path, O_RDONLY, Links::followed)) {
  require_input(descriptor_ >= 0, "{} cannot be opened: {}", path, system_reason(errno));
}

RawFile::~RawFile() { ::close(descriptor_); }

std::size_t RawFile::read(std::span<char> out) {
  const ssize_t bytes = uninterrupted([&] { return ::read(descriptor_, out.data(), out.size()); });
  require_input(bytes >= 0, "{} cannot be read at byte {}: {}", path_, position_, system_reason(errno));
  position_ += bytes;
  return static_cast<std::size_t>(bytes);
}

void RawFile::seek(std::int64_t to) {
  const bool sought = ::lseek(descriptor_, to, SEEK_SET) == to;
  require_input(sought, "{} cannot be read at byte {}: {}", path_, to, system_reason(errno));
  position_ = to;
}

std::size_t RawFile::buffer_bytes() const {
  constexpr std::int64_t most_bytes = 1 << 18;
  return read_buffer_bytes(descriptor_, most_bytes);
}

bool RawInput::more() {
  if (begin == end) {
    begin = 0;
    end = file.read(buffer);
  }
  return begin < end;
}

void fail_damaged(const RawInput& input, std::string_view why) {
  fail(ExitCode::bad_input, "{} is damaged at byte {}: {}; copy it again", input.file.path(), input.position(), why);
}

void fail_trailing_data(const RawInput& input, std::int64_t position, std::string_view program) {
  fail(ExitCode::bad_input,
       "{0} is damaged at byte {1}: what follows is not {2} data; copy it again, or keep what precedes it: {2} -dc {0}",
       input.file.path(), position, program);
}

void fail_truncated(const RawInput& input) {
  fail(ExitCode::bad_input, "{} is truncated: it ends at byte {}, within compressed data; copy it again",
       input.file.path(), input.position());
}

}  // namespace lyceum
