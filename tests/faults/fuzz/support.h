#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"

/// Functions shared by the fuzz targets. A target passes bytes to a parser, which must accept them or refuse them with
/// a usage or bad_input Error. Anything else is a finding: another exception, a crash, a report of a sanitizer, more
/// than 10 s, more than 2 GB.
namespace lyceum::fuzz {

/// Returns the input of a target as text. It refers to `data`.
std::string_view text_of(const std::uint8_t* data, std::size_t size);

/// Returns a folder that belongs to this process, which removes it when it ends.
const std::filesystem::path& folder();
/// Writes the bytes to the file `name` in folder(), and returns its path.
std::filesystem::path input_file(const std::filesystem::path& name, std::string_view bytes);

/// Makes HDF5 reuse freed memory. Otherwise it takes half a megabyte for each file that it opens.
void reuse_hdf5_memory();

/// Throws a std::logic_error, which is a finding, unless `condition` is true.
void hold(bool condition, const std::string& what);

/// Throws, which is a finding, unless the Error is a usage or bad_input Error with a message of the right form.
void require_refusal(const Error& error);

/// Calls `parse`, which may refuse its input. Returns 0, the result of a target.
template <class Parse>
int taken_or_refused(const Parse& parse) {
  try {
    parse();
  } catch (const Error& error) {
    require_refusal(error);
  }
  return 0;
}

/// Calls `parse`. Returns true if it refuses its input.
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
