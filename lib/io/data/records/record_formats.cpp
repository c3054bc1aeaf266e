#include "io/data/records/record_formats.h"

#include <boost/algorithm/string/case_conv.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

#include "io/data/records/json_lines.h"
#include "io/data/records/plain_text.h"
#include "io/files/compressions.h"

namespace lyceum {

namespace {

using namespace std::string_view_literals;

/// A format of files, and how it is recognised: by the ending of a name or by the first bytes.
struct Known {
  const RecordFormat* format = nullptr;       // null if Lyceum cannot read it
  std::array<std::string_view, 4> endings{};  // endings of names, in lower case
  std::string_view magic{};                   // first bytes of files that are not text; empty if they are
  std::size_t magic_at = 0;                   // byte offset of `magic`
  std::string_view advice{};                  // description and advice for users if it cannot be read
};

constexpr Known foreign(std::string_view magic, std::string_view advice, std::size_t magic_at = 0) {
  return {.magic = magic, .magic_at = magic_at, .advice = advice};
}

// The first entry whose magic matches counts. UTF-32 precedes UTF-16, since its byte order mark begins with that of
// UTF-16.
constexpr std::array known_formats{
    Known{.format = &plain_text},
    Known{.format = &json_lines, .endings = {".jsonl", ".ndjson", ".jsonlines", ".ldjson"}},
    foreign("BZh"sv, "compressed with bzip2, not with gzip or zstd"),
    foreign("\xFD"
            "7zXZ\0"sv,
            "compressed with xz, not with gzip or zstd"),
    foreign("\x5D\0\0"sv, "compressed with lzma, not with gzip or zstd"),
    foreign("LZIP"sv, "compressed with lzip, not with gzip or zstd"),
    foreign("\x04\x22\x4D\x18"sv, "compressed with lz4, not with gzip or zstd"),
    foreign("\xFF\x06\0\0sNaPpY"sv, "compressed with snappy, not with gzip or zstd"),
    foreign("\x1F\x9D"sv, "compressed with compress, not with gzip or zstd"),
    foreign("PK\x03\x04"sv, "a zip archive, to be unpacked"),
    foreign("7z\xBC\xAF\x27\x1C"sv, "a 7z archive, to be unpacked"),
    foreign("Rar!\x1A\x07"sv, "a rar archive, to be unpacked"),
    foreign("ustar"sv, "a tar archive, to be unpacked", 257),
    foreign("PAR1"sv, "Parquet, to be converted to JSON lines"),
    foreign("ARROW1\0"sv, "Arrow, to be converted to JSON lines"),
    foreign("\xFF\xFF\xFF\xFF"sv, "Arrow, to be converted to JSON lines"),
    foreign("FEA1"sv, "Feather, to be converted to JSON lines"),
    foreign("Obj\x01"sv, "Avro, to be converted to JSON lines"),
    foreign("ORC"sv, "ORC, to be converted to JSON lines"),
    foreign("\x89HDF\r\n\x1A\n"sv, "HDF5, to be converted to JSON lines"),
    foreign("SQLite format 3\0"sv, "SQLite, to be converted to JSON lines"),
    foreign("MMIDIDX\0"sv, "an index of token files"),
    foreign("%PDF-"sv, "PDF, to be converted to text"),
    foreign("\xFF\xFE\0\0"sv, "UTF-32, to be converted with iconv -f UTF-32 -t UTF-8"),
    foreign("\0\0\xFE\xFF"sv, "UTF-32, to be converted with iconv -f UTF-32 -t UTF-8"),
    foreign("\xFF\xFE"sv, "UTF-16, to be converted with iconv -f UTF-16 -t UTF-8"),
    foreign("\xFE\xFF"sv, "UTF-16, to be converted with iconv -f UTF-16 -t UTF-8"),
};

const Known* known_by_beginning(std::string_view beginning) {
  const auto found = std::ranges::find_if(known_formats, [&](const Known& known) {
    return !known.magic.empty() && beginning.size() > known.magic_at &&
           beginning.substr(known.magic_at).starts_with(known.magic);
  });
  return found == known_formats.end() ? nullptr : &*found;
}

}  // namespace

const RecordFormat& format_by_name(const std::filesystem::path& file) {
  const std::string ending = boost::algorithm::to_lower_copy(uncompressed_name(file).extension().native());
  const auto found = std::ranges::find_if(known_formats, [&](const Known& known) {
    return !ending.empty() && std::ranges::find(known.endings, ending) != known.endings.end();
  });
  return found == known_formats.end() ? plain_text : *found->format;
}

const RecordFormat* format_by_beginning(std::string_view beginning) {
  const Known* known = known_by_beginning(beginning);
  return known ? known->format : nullptr;
}

std::string foreign_format(std::string_view beginning) {
  const Known* known = known_by_beginning(beginning);
  return known ? std::string(known->advice) : "";
}

}  // namespace lyceum
