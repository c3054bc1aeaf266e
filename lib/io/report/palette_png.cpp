#include "io/report/palette_png.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"

// PNG (RFC 2083) of colour type 3 (palette) with a bit depth of 4. Its zlib stream (RFC 1950) consists of stored,
// uncompressed blocks (RFC 1951, 3.2.4).

namespace lyceum {
namespace {

void append_big_endian(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}

/// Returns the CRC-32 of a chunk's type and data.
std::uint32_t png_crc(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

std::uint32_t adler32(std::string_view bytes) {
  std::uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<std::uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

std::string png_chunk(std::string_view type, std::string_view data) {
  std::string chunk;
  append_big_endian(chunk, static_cast<std::uint32_t>(data.size()));
  chunk.append(type).append(data);
  append_big_endian(chunk, png_crc(std::string_view(chunk).substr(4)));
  return chunk;
}

std::string zlib_stored(std::string_view bytes) {
  constexpr std::size_t most = 0xffff;  // bytes per block
  std::string out = "\x78\x01";
  for (std::size_t at = 0; at < bytes.size(); at += most) {
    const std::string_view block = bytes.substr(at, most);
    const auto size = static_cast<std::uint16_t>(block.size());
    out += at + most >= bytes.size() ? '\1' : '\0';
    for (const std::uint16_t word : {size, static_cast<std::uint16_t>(~size)}) {
      out += static_cast<char>(word & 0xff);
      out += static_cast<char>(word >> 8);
    }
    out += block;
  }
  append_big_endian(out, adler32(bytes));
  return out;
}

}  // namespace

std::string palette_png(std::size_t width, std::size_t height, std::span<const std::uint8_t> pixels,
                        std::span<const Rgb8> palette) {
  require(width > 0 && height > 0 && pixels.size() == width * height && palette.size() <= most_palette_colours,
          "a picture of {} by {} cannot have {} pixels of {} colours", width, height, pixels.size(), palette.size());
  std::string header;
  append_big_endian(header, static_cast<std::uint32_t>(width));
  append_big_endian(header, static_cast<std::uint32_t>(height));
  // Bit depth, colour type, and the standard compression, filter and interlace methods.
  header += std::string("\x04\x03\x00\x00\x00", 5);
  std::string colours, rows;
  for (const Rgb8& colour : palette) {
    for (const std::uint8_t part : {colour.red, colour.green, colour.blue}) colours += static_cast<char>(part);
  }
  for (std::size_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    const auto row = pixels.subspan(y * width, width);
    for (std::size_t x = 0; x < width; x += 2) {
      rows += static_cast<char>(row[x] << 4 | (x + 1 < width ? row[x + 1] : 0));
    }
  }
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("PLTE", colours) +
         png_chunk("IDAT", zlib_stored(rows)) + png_chunk("IEND", "");
}

std::string png_data_uri(const std::string& png) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string uri = "data:image/png;base64,";
  for (std::size_t at = 0; at < png.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < png.size() ? static_cast<std::uint8_t>(png[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) uri += at + i <= png.size() ? letters[group >> (18 - 6 * i) & 0x3f] : '=';
  }
  return uri;
}

}  // namespace lyceum
