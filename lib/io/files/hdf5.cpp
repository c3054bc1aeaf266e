#include "io/files/hdf5.h"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "io/files/hdf5_driver.h"
#include "io/files/hdf5_library.h"
#include "io/files/hdf5_types.h"

namespace lyceum::hdf5 {

namespace {

/// Returns the property list for new links, which creates missing groups of a path.
const Handle& link_list() {
  static const auto* const list = [] {  // made once, since a checkpoint has many tensors; never destroyed
    auto* made = new Handle(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
    H5Pset_create_intermediate_group(made->id(), 1);
    H5Pset_char_encoding(made->id(), H5T_CSET_UTF8);
    return made;
  }();
  return *list;
}

/// Returns a chunk shape of about `target` bytes for a dataset. It has whole rows if they fit. The chunks have nearly
/// equal size, because a partly filled chunk at the edge takes as much space as a full one.
Shape default_chunk(const Shape& shape, DType type, std::int64_t target) {
  Shape chunk = shape;
  std::int64_t inner = static_cast<std::int64_t>(size_of(type));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const std::int64_t limit = std::max<std::int64_t>(target / inner, 1);
    const std::int64_t chunks = (shape[axis] + limit - 1) / limit;
    chunk[axis] = std::max<std::int64_t>((shape[axis] + chunks - 1) / std::max<std::int64_t>(chunks, 1), 1);
    inner *= chunk[axis];
  }
  return chunk;
}

Handle creation_list(DType type, const Shape& shape, const Layout& layout) {
  Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(list.id(), false);  // without times, equal contents give equal bytes
  if (shape.rank() == 0 || (shape.size() == 0 && !layout.growing)) return list;
  // Chunks of up to 1 MiB; a dataset that fits into one needs no chunk index. A growing dataset is written row by row,
  // so its chunks are smaller, which wastes less space.
  Shape room = shape;
  if (layout.growing) room[0] = std::numeric_limits<std::int32_t>::max();
  const Shape chunk =
      layout.chunk.rank() ? layout.chunk : default_chunk(room, type, layout.growing ? 1 << 15 : 1 << 20);
  H5Pset_chunk(list.id(), chunk.rank(), sizes_of(chunk).data());
  constexpr unsigned deflate_level = 4;  // higher levels save less than 1 % of integers
  if (layout.compressed && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0) {
    H5Pset_shuffle(list.id());
    H5Pset_deflate(list.id(), deflate_level);
  }
  H5Pset_fletcher32(list.id());
  H5Pset_fill_time(list.id(), layout.growing ? H5D_FILL_TIME_ALLOC : H5D_FILL_TIME_NEVER);
  return list;
}

/// Returns the name of the file that contains an object. It differs from the file that was opened if the object was
/// reached through an external link.
std::string file_of(std::int64_t object) {
  std::string name(static_cast<std::size_t>(std::max<ssize_t>(H5Fget_name(object, nullptr, 0), 0)), '\0');
  H5Fget_name(object, name.data(), name.size() + 1);
  return name;
}

/// True if reading the dataset would open files outside the folder of its file. A file from an untrusted source
/// could otherwise cause any file of this machine to be read. (External storage is rejected by the driver.)
bool reads_outside_folder(std::int64_t dataset, const std::string& own_file) {
  if (file_of(dataset) != own_file) return true;
  const Handle list(H5Dget_create_plist(dataset), H5Pclose);
  if (H5Pget_layout(list.id()) != H5D_VIRTUAL) return false;
  std::size_t sources = 0;
  H5Pget_virtual_count(list.id(), &sources);
  for (std::size_t i = 0; i < sources; ++i) {
    std::string name(static_cast<std::size_t>(std::max<ssize_t>(H5Pget_virtual_filename(list.id(), i, nullptr, 0), 0)),
                     '\0');
    H5Pget_virtual_filename(list.id(), i, name.data(), name.size() + 1);
    if (name.find('/') != std::string::npos) return true;
  }
  return false;
}

/// True if the dataset claims more bytes than the file can contain even at deflate's highest compression ratio. A
/// reader would allocate memory for all of them.
bool claims_too_much(std::int64_t dataset) {
  const Handle list(H5Dget_create_plist(dataset), H5Pclose), space(H5Dget_space(dataset), H5Sclose),
      type(H5Dget_type(dataset), H5Tclose);
  if (H5Pget_layout(list.id()) == H5D_VIRTUAL) return false;  // a virtual dataset stores no data itself
  std::array<hsize_t, H5S_MAX_RANK> sizes{};
  const int rank = H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr);
  double bytes = static_cast<double>(H5Tget_size(type.id()));
  for (int axis = 0; axis < rank; ++axis) bytes *= static_cast<double>(sizes[static_cast<std::size_t>(axis)]);
  constexpr double most_compressed = 1032;
  return bytes > most_compressed * static_cast<double>(H5Dget_storage_size(dataset));
}

}  // namespace

File File::start(const std::filesystem::path& path, Mode mode, std::shared_ptr<HeldWrites> held) {
  const auto lock = lock_library();
  prepare_library();
  auto state = std::make_shared<FileState>();
  state->path = path;
  state->writable = mode != Mode::open;
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  use_driver(access.id(), state->error, std::move(held));
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_LATEST);
  H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG);
  const std::string name = path.string();
  const unsigned flags = mode == Mode::edit ? H5F_ACC_RDWR : H5F_ACC_RDONLY;
  Handle file(mode == Mode::create ? H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id())
                                   : H5Fopen(name.c_str(), flags, access.id()),
              H5Fclose);
  check(file.id(), *state, mode == Mode::create ? "create" : "open");
  return File(std::move(state), std::move(file));
}

File File::create(const std::filesystem::path& path) { return start(path, Mode::create, nullptr); }
File File::open(const std::filesystem::path& path, std::shared_ptr<HeldWrites> held) {
  return start(path, Mode::open, std::move(held));
}
File File::edit(const std::filesystem::path& path, std::shared_ptr<HeldWrites> held) {
  return start(path, Mode::edit, std::move(held));
}
File::~File() = default;

void File::close() {
  const auto lock = lock_library();
  const int result = handle_.close();
  check(result, *file_, "write");
}

const std::filesystem::path& File::path() const { return file_->path; }

bool File::has(const std::string& path) const {
  const auto lock = lock_library();
  // H5Lexists() requires that all links of a path except the last exist.
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string prefix = path.substr(0, end);
    if (prefix != "/" && !prefix.empty() && H5Lexists(handle_.id(), prefix.c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

Dataset File::create_dataset(const std::string& path, DType type, const Shape& shape, const Layout& layout) {
  const auto lock = lock_library();
  const std::string action = "create dataset " + path;
  auto limits = sizes_of(shape);
  if (layout.growing) limits[0] = H5S_UNLIMITED;
  const Handle space = layout.growing
                           ? Handle(H5Screate_simple(shape.rank(), sizes_of(shape).data(), limits.data()), H5Sclose)
                           : space_of(shape);
  const Handle list = creation_list(type, shape, layout);
  const std::int64_t id =
      H5Dcreate2(handle_.id(), path.c_str(), type_of(type).id(), space.id(), link_list().id(), list.id(), H5P_DEFAULT);
  return Dataset(file_, Handle(check(id, *file_, action), H5Dclose));
}

Dataset File::dataset(const std::string& path) const {
  const auto lock = lock_library();
  const std::string action = "open dataset " + path;
  Handle dataset(check(H5Dopen2(handle_.id(), path.c_str(), H5P_DEFAULT), *file_, action), H5Dclose);
  if (reads_outside_folder(dataset.id(), file_of(handle_.id())))
    fail_file(*file_, action, "it is stored in files outside of this file's folder");
  if (!file_->writable && claims_too_much(dataset.id())) fail_file(*file_, action, "the file is too small for it");
  return Dataset(file_, std::move(dataset));
}

Object File::object(const std::string& path) const {
  const auto lock = lock_library();
  return Object(file_,
                Handle(check(H5Oopen(handle_.id(), path.c_str(), H5P_DEFAULT), *file_, "open " + path), H5Oclose));
}

std::vector<std::string> File::children(const std::string& group) const {
  const auto lock = lock_library();
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  check(
      H5Literate_by_name(handle_.id(), group.c_str(), H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names, H5P_DEFAULT),
      *file_, "list group " + group);
  return names;
}

}  // namespace lyceum::hdf5
