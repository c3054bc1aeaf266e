#include "io/data/records/record_formats.h"

#include <array>
#include <cstddef>

namespace lyceum {

namespace {

using namespace std::string_view_literals;

struct Format {
  std::string_view magic;
  std::string_view told;
  std::size_t at = 0;  // where the magic is
};

// The first that matches counts: UTF-32's mark begins with that of UTF-16.
constexpr std::array formats{
    Format{"BZh"sv, "compressed with bzip2, not with gzip or zstd"},
    Format{"\xFD"
           "7zXZ\0"sv,
           "compressed with xz, not with gzip or zstd"},
    Format{"\x5D\0\0"sv, "compressed with lzma, not with gzip or zstd"},
    Format{"LZIP"sv, "compressed with lzip, not with gzip or zstd"},
    Format{"\x04\x22\x4D\x18"sv, "compressed with lz4, not with gzip or zstd"},
    Format{"\xFF\x06\0\0sNaPpY"sv, "compressed with snappy, not with gzip or zstd"},
    Format{"\x1F\x9D"sv, "compressed with compress, not with gzip or zstd"},
    Format{"PK\x03\x04"sv, "a zip archive, to be unpacked"},
    Format{"7z\xBC\xAF\x27\x1C"sv, "a 7z archive, to be unpacked"},
    Format{"Rar!\x1A\x07"sv, "a rar archive, to be unpacked"},
    Format{"ustar"sv, "a tar archive, to be unpacked", 257},
    Format{"PAR1"sv, "Parquet, to be converted to JSON lines"},
    Format{"ARROW1\0"sv, "Arrow, to be converted to JSON lines"},
    Format{"\xFF\xFF\xFF\xFF"sv, "Arrow, to be converted to JSON lines"},
    Format{"FEA1"sv, "Feather, to be converted to JSON lines"},
    Format{"Obj\x01"sv, "Avro, to be converted to JSON lines"},
    Format{"ORC"sv, "ORC, to be converted to JSON lines"},
    Format{"\x89HDF\r\n\x1A\n"sv, "HDF5, to be converted to JSON lines"},
    Format{"SQLite format 3\0"sv, "SQLite, to be converted to JSON lines"},
    Format{"MMIDIDX\0"sv, "an index of token files"},
    Format{"%PDF-"sv, "PDF, to be converted to text"},
    Format{"\xFF\xFE\0\0"sv, "UTF-32, to be converted with iconv -f UTF-32 -t UTF-8"},
    Format{"\0\0\xFE\xFF"sv, "UTF-32, to be converted with iconv -f UTF-32 -t UTF-8"},
    Format{"\xFF\xFE"sv, "UTF-16, to be converted with iconv -f UTF-16 -t UTF-8"},
    Format{"\xFE\xFF"sv, "UTF-16, to be converted with iconv -f UTF-16 -t UTF-8"},
};

}  // namespace

std::string foreign_format(std::string_view beginning) {
  for (const Format& format : formats) {
    if (beginning.size() > format.at && beginning.substr(format.at).starts_with(format.magic)) {
      return std::string(format.told);
    }
  }
  return "";
}

}  // namespace lyceum
