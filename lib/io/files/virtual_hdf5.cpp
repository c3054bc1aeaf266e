#include "io/files/virtual_hdf5.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/files/hdf5_checksum.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

// Names in quotes are those of the HDF5 File Format Specification, version 3.0. All numbers in the file are
// little-endian, as those of this machine.
static_assert(std::endian::native == std::endian::little);

namespace lyceum::hdf5 {

namespace {

constexpr std::uint64_t undefined_address = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t superblock_bytes = 48;

enum MessageType : std::uint8_t {
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

std::size_t rounded_up(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

/// Appends a message of an object header.
void put_message(Bytes& out, MessageType type, std::string_view body) {
  out.put(std::uint8_t{type});
  out.put(static_cast<std::uint16_t>(body.size()));
  out.put(std::uint8_t{0});  // flags
  out.put(body);
}

/// Appends a "Version 2 Data Object Header" with these messages, padded to a multiple of 8 bytes.
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
  out.put(std::uint16_t{0});                                     // offset of the first bit
  out.put(static_cast<std::uint16_t>(8 * size_of(type)));        // precision
  for (const int bits : {wide ? 23 : 7, 8, 0, wide ? 23 : 7}) {  // exponent: location, size; mantissa: likewise
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

/// Returns NaN as fill value.
std::string fill_value_of(DType type) {
  Bytes out;
  out.put(std::uint8_t{3});
  out.put(std::uint8_t{0x2B});  // allocated bit by bit, filled if set, defined
  out.put(static_cast<std::uint32_t>(size_of(type)));
  if (type == DType::f32) {
    out.put(std::uint32_t{0x7FC00000});
  } else {
    out.put(std::uint16_t{0x7FC0});
  }
  return out.text();
}

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

/// Returns a "Virtual Dataset Global Heap Block" with the sources of a dataset.
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

/// A group whose datasets are being added.
struct OpenGroup {
  std::string name;  // the last part of its path
  std::size_t path;  // length of its path, with a slash at its end unless it is the root
  Bytes links;       // messages
};

}  // namespace

/// The file consists of a superblock and batches. A batch is a "global heap collection" with the mappings of its
/// datasets and the object headers of these datasets and of the groups that end among them. So a header's address is
/// known as soon as it is made.
struct VirtualFile::Implementation {
  /// Collections have this size, unless the mappings of one dataset need more.
  static constexpr std::size_t collection_bytes = 4096, collection_header = 16, object_header = 16;
  static constexpr std::size_t most_buffered = 1 << 20;

  std::filesystem::path path;
  int descriptor = -1;
  std::string buffer;                   // written after the bytes on disk
  std::uint64_t position = 0;           // of the present batch
  std::size_t size = collection_bytes;  // of its collection
  Bytes objects, headers;               // of the present batch
  std::uint16_t object_count = 0;
  std::string last;  // the path of the last dataset
  std::vector<OpenGroup> groups{{.name = {}, .path = 0, .links = {}}};

  [[noreturn]] void fail_write(int error) const {
    fail(ExitCode::failed, "{}: cannot write: {}", path.string(), system_reason(error));
  }

  void write(std::string_view bytes, std::uint64_t at) const {
    while (!bytes.empty()) {
      const ssize_t put =
          uninterrupted([&] { return pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(at)); });
      if (put <= 0) fail_write(put < 0 ? errno : EIO);
      bytes.remove_prefix(static_cast<std::size_t>(put));
      at += static_cast<std::uint64_t>(put);
    }
  }

  /// Writes the buffered bytes, which end where the present batch begins.
  void flush() {
    write(buffer, position - buffer.size());
    buffer.clear();
  }

  /// Ends the present batch and begins the next one, whose collection has room for an object of `room` bytes.
  void end_batch(std::size_t room) {
    if (objects.size() + headers.size() > 0) {
      Bytes collection;
      collection.put("GCOL");
      collection.put(std::uint32_t{1});  // version
      collection.put(std::uint64_t{size});
      collection.put(objects.text());
      const std::size_t rest = size - collection.size();
      if (rest >= object_header) {  // object 0 is the free space
        collection.put(std::uint64_t{0});
        collection.put(std::uint64_t{rest});
      }
      collection.pad_to(size);
      buffer += collection.text();
      buffer += headers.text();
      position += size + headers.size();
      if (buffer.size() >= most_buffered) flush();
    }
    objects.clear();
    headers.clear();
    object_count = 0;
    size = std::max(collection_bytes, collection_header + room);
  }

  /// Adds an object to the collection and returns its index.
  std::uint32_t add_object(std::string_view bytes) {
    const std::size_t room = object_header + rounded_up(bytes.size());
    if (collection_header + objects.size() + room > size) end_batch(room);
    objects.put(++object_count);
    objects.put(std::uint16_t{1});  // reference count
    objects.put(std::uint32_t{0});
    objects.put(std::uint64_t{bytes.size()});
    const std::size_t begin = objects.size();
    objects.put(bytes);
    objects.pad_to(begin + rounded_up(bytes.size()));
    return object_count;
  }

  /// Adds an object header and returns its address.
  std::uint64_t add_header(const Bytes& messages) {
    const std::uint64_t address = position + size + headers.size();
    put_header(headers, messages.text());
    return address;
  }

  void add_link(std::string_view name, std::uint64_t address) {
    constexpr std::size_t most = 60000;  // a message has at most 65,535 bytes
    require(name.size() <= most, "{}: a name of {} bytes is too long", path.string(), name.size());
    Bytes body;
    body.put(std::uint8_t{1});
    body.put(std::uint8_t{0x11});  // flags: the length has 2 bytes, and is preceded by the character set
    body.put(std::uint8_t{1});     // UTF-8
    body.put(static_cast<std::uint16_t>(name.size()));
    body.put(name);
    body.put(address);
    put_message(groups.back().links, MessageType::link, body.text());
  }

  /// Returns the address of the header of the innermost open group, which it closes.
  std::uint64_t close_group() {
    Bytes info, messages;
    info.put(std::uint16_t{0});   // version, flags
    info.put(undefined_address);  // no fractal heap
    info.put(undefined_address);  // no index of names
    put_message(messages, MessageType::link_info, info.text());
    put_message(messages, MessageType::group_info, std::string_view("\0\0", 2));
    messages.put(groups.back().links.text());
    const std::uint64_t address = add_header(messages);
    const std::string name = std::move(groups.back().name);
    groups.pop_back();
    if (!groups.empty()) add_link(name, address);
    return address;
  }

  /// Closes the groups that do not contain `added`, and opens those that do. Returns the last part of its path.
  std::string_view enter_group_of(std::string_view added) {
    while (added.substr(0, groups.back().path) != std::string_view(last).substr(0, groups.back().path)) close_group();
    for (std::size_t begin = groups.back().path;;) {
      const std::size_t slash = added.find('/', begin);
      if (slash == std::string_view::npos) return added.substr(begin);
      groups.push_back({.name = std::string(added.substr(begin, slash - begin)), .path = slash + 1, .links = {}});
      begin = slash + 1;
    }
  }
};

VirtualFile::VirtualFile(const std::filesystem::path& path) : implementation_(std::make_unique<Implementation>()) {
  Implementation& self = *implementation_;
  self.path = path;
  self.descriptor = open_regular(path, O_WRONLY | O_CREAT | O_TRUNC, Links::refused);
  require(self.descriptor >= 0, "{}: cannot create: {}", path.string(), system_reason(errno));
  self.buffer.assign(superblock_bytes, '\0');  // until close() knows its contents
  self.position = superblock_bytes;
}

VirtualFile::~VirtualFile() {
  if (implementation_->descriptor >= 0) ::close(implementation_->descriptor);
}

void VirtualFile::add(std::string_view path, DType type, const Shape& shape, std::span<const VirtualSource> sources) {
  Implementation& self = *implementation_;
  require(self.last.empty() || self.last < path, "{}: dataset {} is not after {}", self.path.string(), path, self.last);
  require(type == DType::f32 || type == DType::bf16, "{}: no views of type {}", self.path.string(), name_of(type));
  const std::string_view name = self.enter_group_of(path);
  self.last = path;
  Bytes layout;
  if (sources.empty()) {
    layout.put(std::uint8_t{3});
    layout.put(std::uint8_t{1});  // contiguous
    layout.put(undefined_address);
    layout.put(std::uint64_t{0});
  } else {
    const std::uint32_t object = self.add_object(mappings_of(sources));
    layout.put(std::uint8_t{4});
    layout.put(std::uint8_t{3});  // virtual
    layout.put(self.position);    // of the collection
    layout.put(object);
  }
  Bytes messages;
  put_message(messages, MessageType::dataspace, dataspace_of(shape));
  put_message(messages, MessageType::datatype, datatype_of(type));
  put_message(messages, MessageType::fill_value, fill_value_of(type));
  put_message(messages, MessageType::data_layout, layout.text());
  self.add_link(name, self.add_header(messages));
}

void VirtualFile::close() {
  Implementation& self = *implementation_;
  std::uint64_t root = 0;
  while (!self.groups.empty()) root = self.close_group();
  self.end_batch(0);
  self.flush();
  Bytes superblock;
  superblock.put("\x89HDF\r\n\x1a\n");
  superblock.put(std::uint8_t{3});        // version
  superblock.put(std::uint16_t{0x0808});  // bytes of addresses and of lengths
  superblock.put(std::uint8_t{0});        // flags
  superblock.put(std::uint64_t{0});       // base address
  superblock.put(undefined_address);      // no extension
  superblock.put(self.position);          // end of the file
  superblock.put(root);
  superblock.put_checksum();
  self.write(superblock.text(), 0);
  if (::close(std::exchange(self.descriptor, -1)) != 0 && errno != EINTR) self.fail_write(errno);
}

}  // namespace lyceum::hdf5
