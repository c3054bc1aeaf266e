#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"

/// What fuzz targets share. A target gives bytes to a parser. The parser takes them or refuses them, with a usage or
/// bad_input Error; anything else is a find: another exception, a crash, a report of a sanitizer, more than
/// 10 s, more than 2 GB.
namespace lyceum::fuzz {

std::string_view text_of(const std::uint8_t* data, std::size_t size);

/// A folder of this process, removed at its end.
const std::filesystem::path& folder();
/// Writes the bytes to that file of the folder.
std::filesystem::path input_file(const std::filesystem::path& name, std::string_view bytes);

/// Lets HDF5 reuse what it frees: it takes half a megabyte for each file that it opens.
void reuse_hdf5_memory();

/// Throws a std::logic_error, which is a find, unless `condition`.
void hold(bool condition, const std::string& what);

/// Rethrows the Error unless it is a refusal as it should be.
void require_refusal(const Error& error);

/// Calls `parse`. Returns 0, as a target does.
template <class Parse>
int taken_or_refused(const Parse& parse) {
  try {
    parse();
  } catch (const Error& error) {
    require_refusal(error);
  }
  return 0;
}

/// Whether `parse` refuses.
template <class Parse>
bool refused(const Parse& parse) {
  try {
    parse();
    return false;
  } catch (const Error& error) {
    require_refusal(error);
    return true;
  }
}

}  // namespace lyceum::fuzz
