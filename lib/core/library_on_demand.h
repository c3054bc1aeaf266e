#pragma once

#include <string>
#include <vector>

namespace lyceum {

/// A shared library of NVIDIA that is loaded at the first call of one of its functions, so that programs also start on
/// machines without it. symbol() may be called from several threads.
class LibraryOnDemand {
 public:
  /// `name`: for messages, "NCCL". `file`: with the version of its interface, "libnccl.so.2". Both must outlive this.
  constexpr LibraryOnDemand(const char* name, const char* file) : name_(name), file_(file) {}

  /// Returns the address of a function. The library is searched for where the loader looks (LD_LIBRARY_PATH, the
  /// program's RPATH, the system's folders), then in nvidia_library_folders(). Throws an Error if it is not found, or
  /// has no such function.
  void* symbol(const char* function) const;

 private:
  void* load() const;

  const char *name_, *file_;
};

/// Returns the folders in which a toolkit or Python packages of NVIDIA have their libraries, in the order in which they
/// are searched; all exist:
///   1. lib64 of CUDA_HOME, CUDA_PATH and /usr/local/cuda;
///   2. {site,dist}-packages/nvidia/*/lib below lib/python3* of VIRTUAL_ENV, CONDA_PREFIX, ~/.local, /usr/local and
///   /usr.
std::vector<std::string> nvidia_library_folders();

}  // namespace lyceum

/// The body of a function that calls the function of the same name in `library`, a LibraryOnDemand.
#define LYCEUM_PASS_ON(library, function, ...)                                                               \
  static const auto library_function = reinterpret_cast<decltype(&(function))>((library).symbol(#function)); \
  return library_function(__VA_ARGS__)
