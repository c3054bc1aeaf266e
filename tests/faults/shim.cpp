// clang-format off
// Injects faults into file system calls and records them, in a program that is started with LD_PRELOAD set to this
// library:
//
//   mpirun -n 2 -x LD_PRELOAD=fault_shim.so -x FAULT_ROOT=RUN_DIR -x FAULT_AT=0:fsync:3:EIO lyceum train …
//
// FAULT_ROOT  absolute path of a folder, without links. Calls on the folder and on anything below it count; all others
//             are passed on unchanged.
// FAULT_AT    RANK:KIND:N:FAULT, several separated by commas: the fault of the N-th call (from 1) of a kind in the
//             process of this rank (OMPI_COMM_WORLD_RANK, 0 if unset).
// FAULT_LOG   file to which every call is appended as a line of JSON. The line of a write is followed by the written
//             bytes. All ranks append to one file, each call as soon as it is done. "n" is the N of FAULT_AT: a run
//             without faults shows which calls there are.
//
// Kinds:  open, write, copy (sendfile, copy_file_range), fsync, rename, link, unlink (also rmdir), mkdir, truncate,
//         close.
// Faults: kill         SIGKILL before the call does anything
//         torn         write: writes half of the bytes, then SIGKILL
//         short        write: writes half of the bytes, and returns their number
//         ENOSPC EIO   the call fails and changes nothing; close and fsync do their work before they fail
//         ENOSPC+ EIO+ the same for this and all later calls of the kind
//         EINTR        the call fails once
//         USR1 TERM    the process gets this signal, and the call is done a moment later
// clang-format on
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Fault {
  std::string kind, what;
  long first = 0;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

[[noreturn]] void refuse(const std::string& reason) {
  const std::string line = "fault shim: " + reason + '\n';
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) _exit(99);
  _exit(98);
}

std::string rank_of_process() {
  const std::string rank = variable("OMPI_COMM_WORLD_RANK");
  return rank.empty() ? "0" : rank;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// The faults that the environment defines for this process, and the numbers of calls so far.
struct State {
  std::string root = variable("FAULT_ROOT"), rank = rank_of_process();
  std::vector<Fault> faults;
  int log = -1;
  std::recursive_mutex mutex;  // held during each call below the root, so that the record has the order of the calls
  std::map<std::string, long, std::less<>> calls;  // number of calls by kind

  State() {
    if (const std::string all = variable("FAULT_AT"); !all.empty()) {
      for (const std::string& one : split(all, ',')) {
        const std::vector<std::string> parts = split(one, ':');
        if (parts.size() != 4) refuse("FAULT_AT wants RANK:KIND:N:FAULT, not " + one);
        if (parts[0] == rank) faults.push_back({parts[1], parts[3], std::atol(parts[2].c_str())});
      }
    }
    if (const std::string file = variable("FAULT_LOG"); !file.empty()) {
      log = static_cast<int>(
          syscall(SYS_openat, AT_FDCWD, file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
      if (log < 0) refuse("FAULT_LOG " + file + ": " + std::strerror(errno));
    }
  }
};

State& state() {
  static auto* const instance = new State;  // never destroyed: other libraries close files at exit
  return *instance;
}

/// Returns the function of the C library with this name, which one in this file replaces.
template <class Function>
Function* next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name)                                      \
  ([] {                                                 \
    static auto* const function = next(&::name, #name); \
    return function;                                    \
  }())

std::string link_target(const std::string& link) {
  std::array<char, PATH_MAX> text{};
  const ssize_t length = readlink(link.c_str(), text.data(), text.size());
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}
std::string path_of(int descriptor) { return link_target("/proc/self/fd/" + std::to_string(descriptor)); }
std::string path_of(int directory, const char* name) {
  if (name[0] == '/') return name;
  return (directory == AT_FDCWD ? link_target("/proc/self/cwd") : path_of(directory)) + '/' + name;
}

/// One call. The constructor counts it and determines its fault; done() records it. Calls outside of FAULT_ROOT do
/// neither.
class Call {
 public:
  Call(const char* kind, const char* function, const std::string& path) : kind_(kind), function_(function) {
    State& all = state();
    const std::string_view root = all.root;
    if (root.empty() || !path.starts_with(root) || (path.size() > root.size() && path[root.size()] != '/')) return;
    path_ = path.substr(std::min(root.size() + 1, path.size()));
    lock_.emplace(all.mutex);
    number_ = ++all.calls[kind_];
    for (const Fault& fault : all.faults) {
      const bool lasting = fault.what.ends_with('+');
      if (fault.kind != kind_ || (lasting ? number_ < fault.first : number_ != fault.first)) continue;
      fault_ = lasting ? fault.what.substr(0, fault.what.size() - 1) : fault.what;
      begin_fault();
    }
  }

  /// True if the path is below FAULT_ROOT.
  bool counts() const { return lock_.has_value(); }
  /// True if the call must fail; sets errno. If the work of the call is done although it fails, do it before.
  bool fails() const {
    if (fault_ == "ENOSPC") errno = ENOSPC;
    if (fault_ == "EIO") errno = EIO;
    if (fault_ == "EINTR") errno = EINTR;
    return fault_ == "ENOSPC" || fault_ == "EIO" || fault_ == "EINTR";
  }
  /// True if a write writes only half of its bytes, see taken().
  bool halves() const { return fault_ == "short" || fault_ == "torn"; }
  std::size_t taken(std::size_t bytes) const { return halves() && bytes > 1 ? bytes / 2 : bytes; }

  /// Appends the call to the record and returns `result`. `more`: further members of the JSON; `data`: written bytes.
  template <class Result>
  Result done(Result result, bool failed, const std::string& more = {}, std::string_view data = {}) {
    const int reason = errno;
    if (counts() && state().log >= 0) {
      std::string line = "{\"rank\": " + state().rank + ", \"kind\": \"" + kind_ + "\", \"call\": \"" + function_ +
                         "\", \"n\": " + std::to_string(number_) + ", \"path\": \"" + path_ +
                         "\", \"errno\": " + std::to_string(failed ? reason : 0) +
                         ", \"bytes\": " + std::to_string(data.size()) + more + "}\n";
      line += data;
      if (syscall(SYS_write, state().log, line.data(), line.size()) != static_cast<long>(line.size())) {
        refuse("the record cannot be written");
      }
    }
    if (fault_ == "torn") raise(SIGKILL);
    errno = reason;
    return result;
  }

 private:
  void begin_fault() const {
    if (fault_ == "kill") raise(SIGKILL);
    if (fault_ == "USR1" || fault_ == "TERM") {
      ::kill(getpid(), fault_ == "USR1" ? SIGUSR1 : SIGTERM);
      usleep(100'000);  // gives the program's thread that handles signals time to see it
    }
  }

  const char* kind_;
  const char* function_;
  std::string path_;  // below the root
  std::string fault_;
  long number_ = 0;
  std::optional<std::unique_lock<std::recursive_mutex>> lock_;
};

/// Returns a path relative to FAULT_ROOT, as it is recorded; a path elsewhere is returned unchanged.
std::string below_root(const std::string& path) {
  const std::string& root = state().root;
  return path.starts_with(root + '/') ? path.substr(root.size() + 1) : path;
}

/// Makes a call that changes nothing if it fails. `act` does it, and returns 0 or -1.
template <class Act>
int change_names(Call& call, const std::string& more, const Act& act) {
  if (call.fails()) return call.done(-1, true, more);
  const int result = act();
  return call.done(result, result != 0, more);
}

int opened(const char* function, int directory, const char* name, int flags, mode_t mode) {
  Call call("open", function, path_of(directory, name));
  struct stat before {};
  const bool there = !call.counts() || fstatat(directory, name, &before, 0) == 0;
  const bool changes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
  const std::string more = std::string(", \"writes\": ") + (changes ? "true" : "false");
  if (call.fails()) return call.done(-1, true, more);
  const int result = static_cast<int>(syscall(SYS_openat, directory, name, flags, mode));
  const bool emptied = result >= 0 && there && (flags & O_TRUNC) != 0;
  return call.done(result, result < 0,
                   more + ", \"made\": " + (result >= 0 && !there ? "true" : "false") +
                       ", \"emptied\": " + (emptied ? "true" : "false"));
}

mode_t mode_in(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

/// Returns bytes that a call wrote to a file, for calls whose data are not in the program's memory.
std::string read_back(int descriptor, off_t offset, std::size_t bytes) {
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const auto file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, link.c_str(), O_RDONLY | O_CLOEXEC));
  std::string data(bytes, '\0');
  if (file < 0 || syscall(SYS_pread64, file, data.data(), bytes, offset) != static_cast<long>(bytes)) {
    refuse("what was copied cannot be read");
  }
  syscall(SYS_close, file);
  return data;
}

std::string at(off_t offset) { return ", \"offset\": " + std::to_string(offset); }

/// Makes a write. `offset`: negative to write at the position of the descriptor.
ssize_t written(const char* function, int descriptor, const void* bytes, std::size_t size, off_t offset) {
  Call call("write", function, path_of(descriptor));
  if (call.fails()) return call.done<ssize_t>(-1, true, at(offset));
  const ssize_t result = offset < 0 ? syscall(SYS_write, descriptor, bytes, call.taken(size))
                                    : syscall(SYS_pwrite64, descriptor, bytes, call.taken(size), offset);
  if (!call.counts()) return result;
  const int reason = errno;
  const off_t place = offset < 0 ? lseek(descriptor, 0, SEEK_CUR) - std::max<ssize_t>(result, 0) : offset;
  errno = reason;
  return call.done(result, result < 0, at(place),
                   {static_cast<const char*>(bytes), static_cast<std::size_t>(std::max<ssize_t>(result, 0))});
}

/// Makes a copy. `act(n)` copies n bytes to the position of `descriptor`.
template <class Act>
ssize_t copied(const char* function, int descriptor, std::size_t size, const Act& act) {
  Call call("copy", function, path_of(descriptor));
  if (!call.counts()) return act(size);
  const off_t place = lseek(descriptor, 0, SEEK_CUR);
  if (call.fails()) return call.done<ssize_t>(-1, true, at(place));
  const ssize_t result = act(call.taken(size));
  const int reason = errno;
  const std::string data =
      result > 0 && state().log >= 0 ? read_back(descriptor, place, static_cast<std::size_t>(result)) : std::string();
  errno = reason;
  return call.done(result, result < 0, at(place), data);
}

int renamed(const char* function, int from_directory, const char* from, int to_directory, const char* to,
            unsigned flags) {
  Call call("rename", function, path_of(from_directory, from));
  const std::string more = ", \"to\": \"" + below_root(path_of(to_directory, to)) +
                           "\", \"exchange\": " + ((flags & RENAME_EXCHANGE) != 0 ? "true" : "false");
  return change_names(call, more, [&] {
    return static_cast<int>(syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
  });
}

int unlinked(const char* function, int directory, const char* name, int flags) {
  Call call("unlink", function, path_of(directory, name));
  return change_names(call, {}, [&] { return static_cast<int>(syscall(SYS_unlinkat, directory, name, flags)); });
}

/// Makes a call that does its work even if it then fails.
template <class Act>
int done_and_told(Call& call, const Act& act) {
  const int result = act();
  const bool told_to_fail = call.fails();
  return call.done(told_to_fail ? -1 : result, told_to_fail || result != 0);
}

int synced(const char* function, int descriptor) {
  Call call("fsync", function, path_of(descriptor));
  return done_and_told(call, [&] { return static_cast<int>(syscall(SYS_fsync, descriptor)); });
}

int truncated(const char* function, int descriptor, off_t size) {
  Call call("truncate", function, path_of(descriptor));
  return change_names(call, ", \"size\": " + std::to_string(size),
                      [&] { return static_cast<int>(syscall(SYS_ftruncate, descriptor, size)); });
}

}  // namespace

extern "C" {

int open(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return opened("open", AT_FDCWD, name, flags, mode);
}
int open64(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return opened("open", AT_FDCWD, name, flags, mode);
}
int openat(int directory, const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return opened("openat", directory, name, flags, mode);
}
int openat64(int directory, const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return opened("openat", directory, name, flags, mode);
}
int creat(const char* name, mode_t mode) { return opened("creat", AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC, mode); }
int creat64(const char* name, mode_t mode) {
  return opened("creat", AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

// The C library writes to its streams with internal calls that cannot be replaced. So streams may only read.
static FILE* opened_stream(const char* name, const char* mode, FILE* (*function)(const char*, const char*)) {
  Call call("open", "fopen", path_of(AT_FDCWD, name));
  if (call.counts() && std::strpbrk(mode, "wa+")) refuse(std::string("a stream that writes to ") + name);
  const std::string more = ", \"writes\": false, \"made\": false, \"emptied\": false";
  if (call.fails()) return call.done<FILE*>(nullptr, true, more);
  FILE* const file = function(name, mode);
  return call.done(file, file == nullptr, more);
}
FILE* fopen(const char* name, const char* mode) { return opened_stream(name, mode, NEXT(fopen)); }
FILE* fopen64(const char* name, const char* mode) { return opened_stream(name, mode, NEXT(fopen64)); }

ssize_t write(int descriptor, const void* bytes, size_t size) { return written("write", descriptor, bytes, size, -1); }
ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  return written("pwrite", descriptor, bytes, size, offset);
}
ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off64_t offset) {
  return written("pwrite", descriptor, bytes, size, offset);
}

ssize_t sendfile(int out, int in, off_t* offset, size_t size) {
  return copied("sendfile", out, size, [&](std::size_t n) { return syscall(SYS_sendfile, out, in, offset, n); });
}
ssize_t sendfile64(int out, int in, off64_t* offset, size_t size) { return sendfile(out, in, offset, size); }
ssize_t copy_file_range(int in, off64_t* from, int out, off64_t* to, size_t size, unsigned flags) {
  return copied("copy_file_range", out, size,
                [&](std::size_t n) { return syscall(SYS_copy_file_range, in, from, out, to, n, flags); });
}

int fsync(int descriptor) { return synced("fsync", descriptor); }
int fdatasync(int descriptor) { return synced("fdatasync", descriptor); }

int rename(const char* from, const char* to) noexcept { return renamed("rename", AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  return renamed("renameat", from_directory, from, to_directory, to, 0);
}
int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) noexcept {
  return renamed("renameat2", from_directory, from, to_directory, to, flags);
}
int link(const char* from, const char* to) noexcept {
  Call call("link", "link", path_of(AT_FDCWD, from));
  return change_names(call, ", \"to\": \"" + below_root(path_of(AT_FDCWD, to)) + '"',
                      [&] { return static_cast<int>(syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0)); });
}

int unlink(const char* name) noexcept { return unlinked("unlink", AT_FDCWD, name, 0); }
int unlinkat(int directory, const char* name, int flags) noexcept {
  return unlinked("unlinkat", directory, name, flags);
}
int rmdir(const char* name) noexcept { return unlinked("rmdir", AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char* name) noexcept {
  struct stat status {};
  const bool directory = lstat(name, &status) == 0 && S_ISDIR(status.st_mode);
  return unlinked("remove", AT_FDCWD, name, directory ? AT_REMOVEDIR : 0);
}
int mkdir(const char* name, mode_t mode) noexcept {
  Call call("mkdir", "mkdir", path_of(AT_FDCWD, name));
  return change_names(call, {}, [&] { return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, name, mode)); });
}

int ftruncate(int descriptor, off_t size) noexcept { return truncated("ftruncate", descriptor, size); }
int ftruncate64(int descriptor, off64_t size) noexcept { return truncated("ftruncate", descriptor, size); }

int close(int descriptor) {
  Call call("close", "close", path_of(descriptor));
  return done_and_told(call, [&] { return static_cast<int>(syscall(SYS_close, descriptor)); });
}

}  // extern "C"
