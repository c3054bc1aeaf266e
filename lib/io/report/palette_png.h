#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lyceum {

/// A colour with 8 bits per channel.
struct Rgb8 {
  std::uint8_t red = 0, green = 0, blue = 0;
};

/// The images have four bits per pixel. They are small enough without compression, so no library is needed.
constexpr std::size_t most_palette_colours = 16;

/// Returns the bytes of a PNG file. `pixels` [height, width], row-major, are indices into `palette`. Throws a failed
/// Error if the sizes do not match or the image is empty.
std::string palette_png(std::size_t width, std::size_t height, std::span<const std::uint8_t> pixels,
                        std::span<const Rgb8> palette);

/// Returns a PNG file as "data:image/png;base64,…", for the source of an image in a page.
std::string png_data_uri(const std::string& png);

}  // namespace lyceum
