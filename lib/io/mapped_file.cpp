#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace lyceum {

MappedFile::MappedFile(std::string path, const std::string& mend) : path_(std::move(path)) {
  const auto reason = [] { return std::generic_category().message(errno); };
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  require_input(file >= 0, "{} cannot be opened: {}; {}", path_, reason(), mend);
  struct stat status {};
  std::string problem;
  if (fstat(file, &status) != 0) {
    problem = reason();
  } else if (!S_ISREG(status.st_mode)) {
    problem = "it is not a regular file";
  } else if (status.st_size > 0) {  // nothing can be mapped of an empty file
    size_ = static_cast<std::size_t>(status.st_size);
    void* const mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) {
      problem = reason();
    } else {
      data_ = static_cast<const std::byte*>(mapped);
    }
  }
  close(file);
  require_input(problem.empty(), "{} cannot be read: {}; {}", path_, problem, mend);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace lyceum
