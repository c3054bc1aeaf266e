#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lyceum::hdf5 {

/// Owns one identifier (hid_t) of the HDF5 library.
class Handle {
 public:
  using Close = int (*)(std::int64_t);
  Handle() = default;
  Handle(std::int64_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept;
  ~Handle();
  std::int64_t id() const { return id_; }
  /// Closes the identifier. Returns a negative number if the library reports an error.
  int close();

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

struct FileState;  // defined in hdf5_library.h

/// An HDF5 object with attributes: a file's root, a group or a dataset. Errors: see hdf5.h.
class Object {
 public:
  /// Sets an attribute, and replaces an existing one. h5py shows it as a str, int, float or an array of int or str.
  void set(const std::string& name, const std::string& text);
  void set(const std::string& name, const char* text) { set(name, std::string(text)); }
  void set(const std::string& name, std::int64_t number);
  void set(const std::string& name, int number) { set(name, static_cast<std::int64_t>(number)); }
  void set(const std::string& name, double number);
  void set(const std::string& name, std::span<const std::int64_t> numbers);
  void set(const std::string& name, std::span<const std::string> texts);
  /// True if the object has this attribute.
  bool has_attribute(const std::string& name) const;
  /// Return the value of an attribute. Throw if it is missing, has another type or is not a single value.
  std::string text(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  /// Returns the values of an attribute. Throws if it is missing or has another type.
  std::vector<std::int64_t> integers(const std::string& name) const;

 protected:
  friend class File;
  Object(std::shared_ptr<FileState> file, Handle handle) : file_(std::move(file)), handle_(std::move(handle)) {}
  std::shared_ptr<FileState> file_;
  Handle handle_;
};

}  // namespace lyceum::hdf5
