#include "io/files/new_hdf5.h"

#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/files/atomic_file.h"

namespace lyceum {

std::filesystem::path NewHdf5::temporary_of(const std::filesystem::path& file) {
  return file.parent_path() / ("." + file.filename().string() + ".partial");
}

NewHdf5::NewHdf5(std::filesystem::path file)
    : file_(std::move(file)), temporary_(temporary_of(file_)), reservation_(file_.string()) {
  std::error_code error;
  std::filesystem::remove(temporary_, error);
  require(!error, "{} cannot be removed: {}", temporary_.string(), error.message());
}

NewHdf5::~NewHdf5() {
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);  // does not exist after publish()
}

void NewHdf5::publish() { publish_file(temporary_, file_); }

void write_hdf5(const std::filesystem::path& file, const std::function<void(hdf5::File&)>& fill) {
  NewHdf5 made(file);
  hdf5::File out = hdf5::File::create(made.temporary());
  fill(out);
  out.close();
  made.publish();
}

}  // namespace lyceum
