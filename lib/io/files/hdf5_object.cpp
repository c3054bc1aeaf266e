#include "io/files/hdf5_object.h"

#include <hdf5.h>

#include <cstddef>

#include "io/files/hdf5_library.h"

namespace lyceum::hdf5 {
namespace {

Handle text_type() {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.id(), H5T_VARIABLE);
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  return type;
}

Handle scalar() { return {H5Screate(H5S_SCALAR), H5Sclose}; }

Handle list_of(std::size_t count) {
  const hsize_t size = count;
  return {H5Screate_simple(1, &size, nullptr), H5Sclose};
}

struct Attribute {
  std::int64_t type, memory_type, space;
  const void* values;
};

void write_attribute(const FileState& file, std::int64_t owner, const std::string& name, const Attribute& attribute) {
  const std::string action = "write attribute " + name;
  if (H5Aexists(owner, name.c_str()) > 0) check(H5Adelete(owner, name.c_str()), file, action);
  const Handle handle(
      check(H5Acreate2(owner, name.c_str(), attribute.type, attribute.space, H5P_DEFAULT, H5P_DEFAULT), file, action),
      H5Aclose);
  check(H5Awrite(handle.id(), attribute.memory_type, attribute.values), file, action);
}

Handle open_attribute(const FileState& file, std::int64_t owner, const std::string& name) {
  return {check(H5Aopen(owner, name.c_str(), H5P_DEFAULT), file, "read attribute " + name), H5Aclose};
}

/// Returns the number of elements of an attribute. Throws unless its type class is `kind`.
std::size_t expect(const FileState& file, const Handle& attribute, H5T_class_t kind, const std::string& name) {
  const std::string action = "read attribute " + name;
  const Handle type(check(H5Aget_type(attribute.id()), file, action), H5Tclose);
  if (H5Tget_class(type.id()) != kind) fail_file(file, action, "it has an unexpected type");
  const Handle space(check(H5Aget_space(attribute.id()), file, action), H5Sclose);
  return static_cast<std::size_t>(check(H5Sget_simple_extent_npoints(space.id()), file, action));
}

}  // namespace

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    close();
    id_ = std::exchange(other.id_, -1);
    close_ = other.close_;
  }
  return *this;
}

Handle::~Handle() { close(); }

int Handle::close() {
  if (id_ < 0) return 0;
  const auto lock = lock_library();
  return close_(std::exchange(id_, -1));
}

void Object::set(const std::string& name, const std::string& text) {
  const auto lock = lock_library();
  const Handle type = text_type(), space = scalar();
  const char* pointer = text.c_str();
  write_attribute(*file_, handle_.id(), name, {type.id(), type.id(), space.id(), &pointer});
}

void Object::set(const std::string& name, std::int64_t number) {
  const auto lock = lock_library();
  write_attribute(*file_, handle_.id(), name, {H5T_STD_I64LE, H5T_NATIVE_INT64, scalar().id(), &number});
}

void Object::set(const std::string& name, double number) {
  const auto lock = lock_library();
  write_attribute(*file_, handle_.id(), name, {H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, scalar().id(), &number});
}

void Object::set(const std::string& name, std::span<const std::int64_t> numbers) {
  const auto lock = lock_library();
  write_attribute(*file_, handle_.id(), name,
                  {H5T_STD_I64LE, H5T_NATIVE_INT64, list_of(numbers.size()).id(), numbers.data()});
}

void Object::set(const std::string& name, std::span<const std::string> texts) {
  const auto lock = lock_library();
  const Handle type = text_type(), space = list_of(texts.size());
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  write_attribute(*file_, handle_.id(), name, {type.id(), type.id(), space.id(), pointers.data()});
}

bool Object::has_attribute(const std::string& name) const {
  const auto lock = lock_library();
  return H5Aexists(handle_.id(), name.c_str()) > 0;
}

std::string Object::text(const std::string& name) const {
  const auto lock = lock_library();
  const Handle attribute = open_attribute(*file_, handle_.id(), name);
  const std::string action = "read attribute " + name;
  if (expect(*file_, attribute, H5T_STRING, name) != 1) fail_file(*file_, action, "it is not a single string");
  const Handle stored(check(H5Aget_type(attribute.id()), *file_, action), H5Tclose);
  if (H5Tis_variable_str(stored.id()) <= 0) {  // of fixed length, as other programs write it
    std::string text(H5Tget_size(stored.id()), '\0');
    check(H5Aread(attribute.id(), stored.id(), text.data()), *file_, action);
    return text.substr(0, text.find('\0'));
  }
  char* pointer = nullptr;
  check(H5Aread(attribute.id(), stored.id(), &pointer), *file_, action);
  const std::string text = pointer ? pointer : "";
  H5free_memory(pointer);
  return text;
}

std::int64_t Object::integer(const std::string& name) const {
  const auto lock = lock_library();
  const std::vector<std::int64_t> values = integers(name);
  if (values.size() != 1) fail_file(*file_, "read attribute " + name, "it is not a single number");
  return values[0];
}

double Object::number(const std::string& name) const {
  const auto lock = lock_library();
  const Handle attribute = open_attribute(*file_, handle_.id(), name);
  double value = 0;
  if (expect(*file_, attribute, H5T_FLOAT, name) != 1) {
    fail_file(*file_, "read attribute " + name, "it is not a single number");
  }
  check(H5Aread(attribute.id(), H5T_NATIVE_DOUBLE, &value), *file_, "read attribute " + name);
  return value;
}

std::vector<std::int64_t> Object::integers(const std::string& name) const {
  const auto lock = lock_library();
  const Handle attribute = open_attribute(*file_, handle_.id(), name);
  std::vector<std::int64_t> values(expect(*file_, attribute, H5T_INTEGER, name));
  check(H5Aread(attribute.id(), H5T_NATIVE_INT64, values.data()), *file_, "read attribute " + name);
  return values;
}

}  // namespace lyceum::hdf5
