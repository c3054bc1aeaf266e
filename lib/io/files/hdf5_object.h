#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lyceum::hdf5 {

/// Owns one identifier of the library.
class Handle {
 public:
  using Close = int (*)(std::int64_t);
  Handle() = default;
  Handle(std::int64_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept;
  ~Handle();
  std::int64_t id() const { return id_; }
  /// Closes now; negative when the library could not.
  int close();

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

struct FileState;  // path, mode and what went wrong while writing

/// An object with attributes: the root of a file, a group, a dataset.
class Object {
 public:
  /// Attributes appear to h5py as str, int, float and arrays of int or str. Replaced when there already.
  void set(const std::string& name, const std::string& text);
  void set(const std::string& name, const char* text) { set(name, std::string(text)); }
  void set(const std::string& name, std::int64_t number);
  void set(const std::string& name, int number) { set(name, static_cast<std::int64_t>(number)); }
  void set(const std::string& name, double number);
  void set(const std::string& name, std::span<const std::int64_t> numbers);
  void set(const std::string& name, std::span<const std::string> texts);
  bool has_attribute(const std::string& name) const;
  std::string text(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  std::vector<std::int64_t> integers(const std::string& name) const;

 protected:
  friend class File;
  Object(std::shared_ptr<FileState> file, Handle handle) : file_(std::move(file)), handle_(std::move(handle)) {}
  std::shared_ptr<FileState> file_;
  Handle handle_;
};

}  // namespace lyceum::hdf5
