#include "io/files/virtual_hdf5.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/files/hdf5_encoding.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

namespace lyceum::hdf5 {

namespace {

constexpr std::size_t superblock_bytes = 48;

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
