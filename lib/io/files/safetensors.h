#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "io/files/input_file.h"
#include "io/files/partial_file.h"

/// The files of Hugging Face's models (https://github.com/huggingface/safetensors): the length of a header in 8 bytes,
/// the header, which is JSON, {"NAME": {"dtype": "F32", "shape": […], "data_offsets": [begin, end]}, …}, and the
/// tensors, row-major, one behind the other.
namespace lyceum::safetensors {

enum class Type { f32, bf16, f16 };

/// "F32"
std::string_view name_of(Type type);
std::int64_t bytes_of(Type type, const Shape& shape);

struct Entry {
  std::string name;
  Type type = Type::f32;
  Shape shape = {};
  std::uint64_t begin = 0;  // byte of the file
};

class Reader {
 public:
  /// Reads the header. Throws a bad_input Error that names the file where it is no such file, the tensors are not one
  /// behind the other to its end, or one has another type or more than four dimensions.
  explicit Reader(const std::filesystem::path& file);

  const std::string& path() const { return file_.path(); }
  /// Sorted by name.
  const std::vector<Entry>& tensors() const { return tensors_; }
  /// Fills `values`, as many as the tensor has.
  void read(const Entry& tensor, std::span<float> values) const;

 private:
  InputFile file_;
  std::vector<Entry> tensors_;
};

/// Writes a file whose tensors are known and come one after another.
class Writer {
 public:
  /// `tensors`: in the order of the file, each with a place in it. Errors as PartialFile's.
  Writer(const std::filesystem::path& file, std::vector<Entry> tensors);
  /// The next tensor's values, rounded to its type.
  void write(std::span<const float> values);
  /// Publishes the file, which has all its tensors.
  void finish();

 private:
  PartialFile file_;
  std::vector<Entry> tensors_;
  std::size_t written_ = 0;
};

}  // namespace lyceum::safetensors
