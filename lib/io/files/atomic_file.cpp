#include "io/files/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iterator>
#include <system_error>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

namespace lyceum {
namespace {

[[noreturn]] void fail_path(const std::filesystem::path& path, std::string_view action, int error) {
  fail(ExitCode::failed, "{}: cannot {}: {}", path.string(), action, system_reason(error));
}

/// Fails since `path`, which is not a directory, exists where one is to be created.
[[noreturn]] void fail_existing(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path target = std::filesystem::read_symlink(path, ignored);
  require(target.empty(), "{}: cannot create the directory: it is a link to {}, which is not a directory",
          path.string(), target.string());
  fail(ExitCode::failed, "{}: cannot create the directory: a file has this name", path.string());
}

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int value) : path_(path), value_(value) {
    if (value_ < 0) fail_path(path, "open", errno);
  }
  ~Descriptor() { ::close(value_); }  // errors are ignored: sync() has reported those of writing
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void sync() const {
    if (uninterrupted([&] { return fsync(value_); }) != 0) fail_path(path_, "write to disk", errno);
  }
  operator int() const { return value_; }  // NOLINT: implicit, for use in system calls

 private:
  const std::filesystem::path path_;
  int value_;
};

}  // namespace

void write_file(const std::filesystem::path& path, std::string_view text, bool durable) {
  const Descriptor file(path, open_regular(path, O_WRONLY | O_CREAT | O_TRUNC, Links::refused));
  while (!text.empty()) {
    const ssize_t put = uninterrupted([&] { return ::write(file, text.data(), text.size()); });
    if (put <= 0) fail_path(path, "write", put < 0 ? errno : EIO);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  if (durable) file.sync();
}

void sync_path(const std::filesystem::path& path) {
  Descriptor(path, uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); })).sync();
}

bool make_directories(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return false;
  const std::filesystem::path parent = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::exists(parent, error)) make_directories(parent);
  const bool made = std::filesystem::create_directory(path, error);
  std::error_code unexaminable;
  const bool parent_removed =
      error == std::errc::no_such_file_or_directory && !std::filesystem::exists(parent, unexaminable);
  if (parent_removed) return make_directories(path);  // by another process
  if (error == std::errc::file_exists) fail_existing(path);
  if (error) fail_path(path, "create the directory", error.value());
  if (made && access(parent.c_str(), R_OK) == 0) sync_path(parent);  // only readable folders can be synced
  return made;
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_path(from, "rename to " + to.filename().string(), errno);
}

void replace_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path fresh = path;
  fresh += ".partial";
  try {
    write_file(fresh, text);
    rename_path(fresh, path);
  } catch (const Error&) {
    std::error_code ignored;
    std::filesystem::remove(fresh, ignored);
    throw;
  }
  sync_path(path.has_parent_path() ? path.parent_path() : ".");
}

void publish_file(const std::filesystem::path& fresh, const std::filesystem::path& name) {
  sync_path(fresh);
  rename_path(fresh, name);
  sync_path(std::filesystem::absolute(name).parent_path());
}

std::filesystem::path publish_directory(const std::filesystem::path& fresh, const std::filesystem::path& name) {
  if (!std::filesystem::exists(name)) {
    rename_path(fresh, name);
    return {};
  }
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, name.c_str(), RENAME_EXCHANGE) == 0) return fresh;
  if (errno != EINVAL && errno != ENOSYS) fail_path(fresh, "exchange with " + name.filename().string(), errno);
  std::filesystem::path old = name;
  old += ".replaced";
  std::error_code ignored;
  std::filesystem::remove_all(old, ignored);
  rename_path(name, old);
  try {
    rename_path(fresh, name);
  } catch (const Error&) {
    std::filesystem::rename(old, name, ignored);
    throw;
  }
  return old;
}

}  // namespace lyceum
