#include "io/files/new_hdf5.h"

#include <string>
#include <system_error>

#include "io/files/atomic_file.h"

namespace lyceum {

void write_hdf5(const std::filesystem::path& file, const std::function<void(hdf5::File&)>& fill) {
  const std::filesystem::path partial = file.parent_path() / ("." + file.filename().string() + ".partial");
  try {
    hdf5::File out = hdf5::File::create(partial);
    fill(out);
    out.close();
    publish_file(partial, file);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

}  // namespace lyceum
