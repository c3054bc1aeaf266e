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

/// Reading and writing of safetensors, the file format of Hugging Face's models
/// (https://github.com/huggingface/safetensors). A file consists of
/// 1. the length of the header, in 8 bytes;
/// 2. the header, JSON: {"NAME": {"dtype": "F32", "shape": […], "data_offsets": [begin, end]}, …};
/// 3. the tensors, row-major, one after the other.
namespace lyceum::safetensors {

/// The number types that Lyceum can read. F16, F8_E4M3 and U8 are only read, not written.
enum class Type { f32, bf16, f16, f8_e4m3, u8 };

/// Returns the type's name in the header, such as "F32".
std::string_view name_of(Type type);
/// Returns the size in bytes of a tensor.
std::int64_t bytes_of(Type type, const Shape& shape);

/// A tensor of a file.
struct Entry {
  std::string name;
  Type type = Type::f32;
  Shape shape = {};
  std::uint64_t begin = 0;  // offset in the file, in bytes; writers ignore it
};

/// Reads the tensors of one file.
class Reader {
 public:
  /// Reads the header. Throws a bad_input Error that names the file if it is not a safetensors file, if the tensors do
  /// not fill it without gaps, or if a tensor has another type or more than four dimensions.
  explicit Reader(const std::filesystem::path& file);

  const std::string& path() const { return file_.path(); }
  /// Returns all tensors in alphabetical order.
  const std::vector<Entry>& tensors() const { return tensors_; }
  /// Reads a tensor and converts it to f32. `values` must have as many elements as the tensor. Does not check them for
  /// NaN. Throws as InputFile::read() does.
  void read(const Entry& tensor, std::span<float> values) const;
  /// Reads elements [first, first + values.size()) of the flat tensor as read() does. Throws an Error if they are out
  /// of range.
  void read(const Entry& tensor, std::int64_t first, std::span<float> values) const;
  /// Reads the same elements of a tensor of bytes (U8) as they are.
  void read_bytes(const Entry& tensor, std::int64_t first, std::span<std::uint8_t> values) const;

 private:
  InputFile file_;
  std::vector<Entry> tensors_;
};

/// Writes a file whose tensors are known in advance, one tensor after the other. The file appears under its name when
/// finish() is called.
class Writer {
 public:
  /// Begins a file and writes its header. `tensors` is in the order of the file. Throws as PartialFile does.
  Writer(const std::filesystem::path& file, std::vector<Entry> tensors);
  /// Writes values, rounded to the type of their tensor. They follow those of the previous call, and begin the next
  /// tensor if the previous one is complete. Throws a failed Error for types that cannot be written, or if there are
  /// more values than the tensor has left.
  void write(std::span<const float> values);
  /// Closes and publishes the file. Throws unless all tensors have been written.
  void finish();

 private:
  PartialFile file_;
  std::vector<Entry> tensors_;
  std::size_t written_ = 0;    // complete tensors
  std::int64_t elements_ = 0;  // that have been written of the next one
};

}  // namespace lyceum::safetensors
