#include "io/report/palette_png.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"

namespace lyceum {
namespace {

TEST(PalettePng, HasTheBytesOfTheFormat) {
  const std::vector<std::uint8_t> pixels{0, 1, 2, 2, 1, 0};
  const std::vector<Rgb8> palette{{0, 0, 0}, {255, 0, 0}, {0, 0, 255}};
  EXPECT_EQ(png_data_uri(palette_png(3, 2, pixels, palette)),
            "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAMAAAACBAMAAABvWnspAAAACVBMVEUAAAD/"
            "AAAAAP9Kpa2BAAAAEUlEQVR4AQEGAPn/AAEgACEAAM0AQ4sBrGEAAAAASUVORK5CYII=");
}

TEST(PalettePng, LargePicturesHaveSeveralBlocks) {
  const std::vector<std::uint8_t> pixels(256 * 1024, 3);
  const std::vector<Rgb8> palette(16);
  const std::string png = palette_png(256, 1024, pixels, palette);
  const std::size_t stored = 1024 * (1 + 128);
  EXPECT_EQ(png.size(), 8 + 25 + 12 + 3 * 16 + 12 + 2 + stored + 5 * 3 + 4 + 12)
      << "three blocks of at most 65,535 bytes";
  EXPECT_THROW(palette_png(2, 2, pixels, palette), Error);
}

TEST(PalettePng, UrisArePadded) {
  EXPECT_EQ(png_data_uri("a"), "data:image/png;base64,YQ==");
  EXPECT_EQ(png_data_uri("ab"), "data:image/png;base64,YWI=");
  EXPECT_EQ(png_data_uri("abc"), "data:image/png;base64,YWJj");
}

}  // namespace
}  // namespace lyceum
