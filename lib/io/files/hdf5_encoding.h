#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "io/files/hdf5_checksum.h"
#include "io/files/virtual_hdf5.h"

/// Parts of HDF5 files as bytes, according to the HDF5 File Format Specification, version 3.0, whose names are in
/// quotes here. To be included only by the implementation of io/files/virtual_hdf5.h.
namespace lyceum::hdf5 {

// Numbers in the file are little-endian, as those of this machine.
static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t undefined_address = std::numeric_limits<std::uint64_t>::max();

/// Types of "Header Messages".
enum class MessageType : std::uint8_t {
  dataspace = 0x01,
  link_info = 0x02,
  datatype = 0x03,
  fill_value = 0x05,
  link = 0x06,
  data_layout = 0x08,
  group_info = 0x0A
};

/// A part of the file that is being put together.
class Bytes {
 public:
  template <std::unsigned_integral T>
  void put(T number) {
    text_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void put(std::string_view bytes) { text_ += bytes; }
  void put_terminated(std::string_view text) { (text_ += text) += '\0'; }
  void pad_to(std::size_t size) { text_.resize(std::max(size, text_.size()), '\0'); }
  /// Appends the checksum of the bytes from `begin` on.
  void put_checksum(std::size_t begin = 0) { put(checksum(std::string_view(text_).substr(begin))); }
  void clear() { text_.clear(); }

  std::size_t size() const { return text_.size(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Rounds up to a multiple of 8.
constexpr std::size_t rounded_up(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

/// Appends a message of an object header.
void put_message(Bytes& out, MessageType type, std::string_view body);
/// Appends a "Version 2 Data Object Header" with these messages, padded to a multiple of 8 bytes.
void put_header(Bytes& out, std::string_view messages);

/// Return the bodies of messages: of the type f32 or bf16, of the shape, and of NaN as fill value.
std::string datatype_of(DType type);
std::string dataspace_of(const Shape& shape);
std::string fill_value_of(DType type);
/// Returns a "Virtual Dataset Global Heap Block" with the sources of a dataset.
std::string mappings_of(std::span<const VirtualSource> sources);

}  // namespace lyceum::hdf5
