#include "io/files/hdf5_encoding.h"

#include "io/files/box.h"

namespace lyceum::hdf5 {

void put_message(Bytes& out, MessageType type, std::string_view body) {
  out.put(static_cast<std::uint8_t>(type));
  out.put(static_cast<std::uint16_t>(body.size()));
  out.put(std::uint8_t{0});  // flags
  out.put(body);
}

void put_header(Bytes& out, std::string_view messages) {
  const std::size_t begin = out.size();
  out.put("OHDR");
  out.put(std::uint8_t{2});
  out.put(std::uint8_t{2});  // flags: the size has 4 bytes
  out.put(static_cast<std::uint32_t>(messages.size()));
  out.put(messages);
  out.put_checksum(begin);
  out.pad_to(begin + rounded_up(out.size() - begin));
}

std::string datatype_of(DType type) {
  const bool wide = type == DType::f32;
  Bytes out;
  out.put(std::uint8_t{0x11});                         // version 1, floating point
  out.put(std::uint8_t{0x20});                         // little-endian, implied first bit of the mantissa
  out.put(static_cast<std::uint8_t>(wide ? 31 : 15));  // the bit of the sign
  out.put(std::uint8_t{0});
  out.put(static_cast<std::uint32_t>(size_of(type)));
  out.put(std::uint16_t{0});                               // offset of the first bit
  out.put(static_cast<std::uint16_t>(8 * size_of(type)));  // precision
  for (const int bits :
       {wide ? 23 : 7, 8, 0, wide ? 23 : 7}) {  // location and size of the exponent, then of the mantissa
    out.put(static_cast<std::uint8_t>(bits));
  }
  out.put(std::uint32_t{127});  // bias of the exponent
  return out.text();
}

std::string dataspace_of(const Shape& shape) {
  Bytes out;
  out.put(std::uint8_t{2});
  out.put(static_cast<std::uint8_t>(shape.rank()));
  out.put(std::uint8_t{0});                                  // no largest size
  out.put(static_cast<std::uint8_t>(shape.rank() ? 1 : 0));  // simple or scalar
  for (const std::int64_t extent : shape.extents()) out.put(static_cast<std::uint64_t>(extent));
  return out.text();
}

std::string fill_value_of(DType type) {
  Bytes out;
  out.put(std::uint8_t{3});
  out.put(std::uint8_t{0x2B});  // incremental allocation, written if set, defined
  out.put(static_cast<std::uint32_t>(size_of(type)));
  if (type == DType::f32) {
    out.put(std::uint32_t{0x7FC00000});
  } else {
    out.put(std::uint16_t{0x7FC0});
  }
  return out.text();
}

namespace {

/// Appends the "Dataspace Selection" of a whole dataset.
void put_all(Bytes& out) {
  for (const std::uint32_t word : {3, 1, 0, 0}) out.put(word);
}

/// Appends the "Dataspace Selection" of a box. Version 1 has numbers of 32 bits, version 2 of 64 bits.
void put_selection(Bytes& out, const Box& box) {
  const auto rank = static_cast<std::uint32_t>(box.extent.rank());
  bool large = false;
  for (std::uint32_t axis = 0; axis < rank; ++axis) {
    const int a = static_cast<int>(axis);
    large = large || box.offset[a] + box.extent[a] > std::numeric_limits<std::uint32_t>::max();
  }
  out.put(std::uint32_t{2});
  out.put(std::uint32_t{large ? 2u : 1u});
  if (large) {
    out.put(std::uint8_t{1});  // regular: start, stride, count, block for each axis
    out.put(static_cast<std::uint32_t>(sizeof(std::uint32_t) + rank * 4 * sizeof(std::uint64_t)));
    out.put(rank);
    for (int axis = 0; axis < box.extent.rank(); ++axis) {
      for (const std::int64_t number : {box.offset[axis], box.extent[axis], std::int64_t{1}, box.extent[axis]}) {
        out.put(static_cast<std::uint64_t>(number));
      }
    }
    return;
  }
  out.put(std::uint32_t{0});
  out.put(static_cast<std::uint32_t>(2 * sizeof(std::uint32_t) + rank * 2 * sizeof(std::uint32_t)));
  out.put(rank);
  out.put(std::uint32_t{1});  // one block: its first and its last element
  for (const std::int64_t first : box.offset.extents()) out.put(static_cast<std::uint32_t>(first));
  for (int axis = 0; axis < box.extent.rank(); ++axis) {
    out.put(static_cast<std::uint32_t>(box.offset[axis] + box.extent[axis] - 1));
  }
}

}  // namespace

std::string mappings_of(std::span<const VirtualSource> sources) {
  Bytes out;
  out.put(std::uint8_t{0});
  out.put(static_cast<std::uint64_t>(sources.size()));
  for (const VirtualSource& source : sources) {
    out.put_terminated(source.file);
    out.put_terminated(source.dataset);
    if (source.first) {
      put_selection(out, {{*source.first}, {source.box.extent.size()}});
    } else {
      put_all(out);
    }
    put_selection(out, source.box);
  }
  out.put_checksum();
  return out.text();
}

}  // namespace lyceum::hdf5
