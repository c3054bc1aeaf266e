#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lyceum {

struct Rgb8 {
  std::uint8_t red = 0, green = 0, blue = 0;
};

/// Four bits a pixel: half a byte each is small enough without compressing, so no library is needed.
constexpr std::size_t most_palette_colours = 16;

/// `pixels` [height, width], row-major, are indices into `palette`. The bytes of a PNG file.
std::string palette_png(std::size_t width, std::size_t height, std::span<const std::uint8_t> pixels,
                        std::span<const Rgb8> palette);

/// "data:image/png;base64,…", as the source of an image in a page.
std::string png_data_uri(const std::string& png);

}  // namespace lyceum
