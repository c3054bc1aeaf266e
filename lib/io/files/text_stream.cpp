#include "io/files/text_stream.h"

#include <algorithm>
#include <vector>

#include "io/files/compressions.h"
#include "io/files/decompressor.h"

namespace lyceum {

struct TextStream::Implementation {
  RawFile file;
  RawInput input{file};
  std::unique_ptr<Decompressor> decompressor;

  explicit Implementation(const std::string& path) : file(path) {
    // At least as many bytes as the beginnings by which compressions are recognised.
    constexpr std::size_t longest_magic = 8;
    while (input.end < longest_magic) {
      const std::size_t bytes = file.read(std::span(input.buffer).subspan(input.end));
      if (bytes == 0) break;
      input.end += bytes;
    }
    decompressor = decompressor_for({input.buffer.data(), input.end});
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
  RawInput& input = implementation_->input;
  if (!compressed()) {
    implementation_->file.seek(input.position() + bytes);
    input.begin = input.end = 0;
    return;
  }
  constexpr std::int64_t most_bytes = 1 << 18;  // read at a time
  std::vector<char> left_out(static_cast<std::size_t>(std::clamp<std::int64_t>(bytes, 0, most_bytes)));
  while (bytes > 0) {
    const auto now = static_cast<std::size_t>(std::min<std::int64_t>(bytes, std::ssize(left_out)));
    if (read(std::span(left_out).first(now)) < now) fail_truncated(input);
    bytes -= static_cast<std::int64_t>(now);
  }
}

}  // namespace lyceum
