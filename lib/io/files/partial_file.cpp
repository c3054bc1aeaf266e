#include "io/files/partial_file.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace lyceum {

PartialFile::PartialFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {
  file_ = std::fopen(partial_.c_str(), "wb");
  check(file_ != nullptr);
}

PartialFile::~PartialFile() {
  if (file_ != nullptr) std::fclose(file_);
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void PartialFile::write(const void* data, std::size_t bytes) { check(std::fwrite(data, 1, bytes, file_) == bytes); }

void PartialFile::close() {
  check(std::fflush(file_) == 0 && fsync(fileno(file_)) == 0);
  std::FILE* const file = std::exchange(file_, nullptr);
  check(std::fclose(file) == 0);
}

void PartialFile::publish() const { check(std::rename(partial_.c_str(), path_.c_str()) == 0); }

void PartialFile::remove_old() const { check(std::remove(path_.c_str()) == 0 || errno == ENOENT); }

void PartialFile::check(bool done) const {
  require(done, "{} cannot be written: {}", path_, std::generic_category().message(errno));
}

}  // namespace lyceum
