#include "io/files/hdf5.h"

#include <hdf5.h>
#include <hdf5_hl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <mutex>

#include "core/error.h"
#include "io/files/hdf5_detail.h"

namespace lyceum::hdf5 {

void FairLock::lock() {
  std::unique_lock guard(mutex_);
  if (owner_ != std::this_thread::get_id()) {
    const std::uint64_t ticket = next_++;
    changed_.wait(guard, [&] { return served_ == ticket; });
    owner_ = std::this_thread::get_id();
  }
  ++depth_;
}

void FairLock::unlock() {
  const std::scoped_lock guard(mutex_);
  if (--depth_ > 0) return;
  owner_ = {};
  ++served_;
  changed_.notify_all();
}

std::unique_lock<FairLock> lock_library() {
  static auto* const lock = new FairLock;  // never destroyed: files may be closed at exit
  return std::unique_lock(*lock);
}

std::string library_reason() {
  struct Reason {
    std::string outer, inner;
  } reason;
  const auto visit = [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
    auto& lines = *static_cast<Reason*>(out);
    (n == 0 ? lines.outer : lines.inner) = error->desc ? error->desc : "";
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, visit, &reason);
  H5Eclear2(H5E_DEFAULT);
  std::string text = reason.outer.empty() ? "HDF5 gives no reason" : reason.outer;
  if (!reason.inner.empty() && reason.inner != reason.outer) text += ": " + reason.inner;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void fail_file(const FileState& file, std::string_view action, std::string_view reason) {
  fail(file.writable ? ExitCode::failed : ExitCode::bad_input, "{}: cannot {}: {}", file.path.string(), action, reason);
}

namespace {

/// Must come before every first use of the library in a thread.
void prepare_library() {
  static std::once_flag once;
  // Left to itself the library closes files at exit, and crashes on one whose disk was full.
  std::call_once(once, [] { H5dont_atexit(); });
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // of this thread: errors are reported in one line, by check()
}

std::array<hsize_t, Shape::max_rank> sizes_of(const Shape& shape) {
  std::array<hsize_t, Shape::max_rank> sizes{};
  for (int axis = 0; axis < shape.rank(); ++axis)
    sizes[static_cast<std::size_t>(axis)] = static_cast<hsize_t>(shape[axis]);
  return sizes;
}

Handle space_of(const Shape& shape) {
  return {shape.rank() ? H5Screate_simple(shape.rank(), sizes_of(shape).data(), nullptr) : H5Screate(H5S_SCALAR),
          H5Sclose};
}

void select(std::int64_t space, const Box& box) {
  if (box.extent.rank()) {
    H5Sselect_hyperslab(space, H5S_SELECT_SET, sizes_of(box.offset).data(), nullptr, sizes_of(box.extent).data(),
                        nullptr);
  }
}

/// bfloat16, which HDF5 has no name for: sign 15, exponent 7–14, mantissa 0–6; h5dump and h5py read it as float.
Handle bfloat16_type() {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type.id(), 15, 7, 8, 0, 7);
  H5Tset_size(type.id(), 2);
  H5Tset_precision(type.id(), 16);
  H5Tset_ebias(type.id(), 127);
  return type;
}

Handle type_of(DType type) {
  switch (type) {
    case DType::f32: return {H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
    case DType::bf16: return bfloat16_type();
    case DType::f64: return {H5Tcopy(H5T_IEEE_F64LE), H5Tclose};
    case DType::i32: return {H5Tcopy(H5T_STD_I32LE), H5Tclose};
    case DType::i64: return {H5Tcopy(H5T_STD_I64LE), H5Tclose};
    case DType::u8: return {H5Tcopy(H5T_STD_U8LE), H5Tclose};
  }
  fail(ExitCode::failed, "a dtype that HDF5 files cannot store");
}

/// Groups on the way are made.
const Handle& link_list() {
  static const auto* const list = [] {  // made once, as a checkpoint has many tensors; never destroyed
    auto* made = new Handle(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
    H5Pset_create_intermediate_group(made->id(), 1);
    H5Pset_char_encoding(made->id(), H5T_CSET_UTF8);
    return made;
  }();
  return *list;
}

/// About `target` bytes, whole rows where they fit; of equal size, because a chunk at the edge takes as much as any.
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
  H5Pset_obj_track_times(list.id(), false);  // equal contents, equal bytes
  if (shape.rank() == 0 || (shape.size() == 0 && !layout.growing)) return list;
  // 1 MiB: what fits whole needs no chunk index. What grows is written row by row: chunks stay small on disk.
  Shape room = shape;
  if (layout.growing) room[0] = std::numeric_limits<std::int32_t>::max();
  const Shape chunk =
      layout.chunk.rank() ? layout.chunk : default_chunk(room, type, layout.growing ? 1 << 15 : 1 << 20);
  H5Pset_chunk(list.id(), chunk.rank(), sizes_of(chunk).data());
  H5Pset_fletcher32(list.id());
  H5Pset_fill_time(list.id(), layout.growing ? H5D_FILL_TIME_ALLOC : H5D_FILL_TIME_NEVER);
  return list;
}

/// The file that an object is in, which an external link makes another than the one that was opened.
std::string file_of(std::int64_t object) {
  std::string name(static_cast<std::size_t>(std::max<ssize_t>(H5Fget_name(object, nullptr, 0), 0)), '\0');
  H5Fget_name(object, name.data(), name.size() + 1);
  return name;
}

/// Whether reading a dataset would open files that are not next to its own: a file from somebody else could so have any
/// file of this machine read. (The driver refuses to read the names of external storage.)
bool lies_elsewhere(std::int64_t dataset, const std::string& own_file) {
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

/// Whether a dataset claims more bytes than the file can hold of it, even compressed as well as deflate can: its reader
/// would take memory for all of them, or take as long.
bool claims_too_much(std::int64_t dataset) {
  const Handle list(H5Dget_create_plist(dataset), H5Pclose), space(H5Dget_space(dataset), H5Sclose),
      type(H5Dget_type(dataset), H5Tclose);
  if (H5Pget_layout(list.id()) == H5D_VIRTUAL) return false;  // it stores nothing
  std::array<hsize_t, H5S_MAX_RANK> sizes{};
  const int rank = H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr);
  double bytes = static_cast<double>(H5Tget_size(type.id()));
  for (int axis = 0; axis < rank; ++axis) bytes *= static_cast<double>(sizes[static_cast<std::size_t>(axis)]);
  constexpr double most_compressed = 1032;
  return bytes > most_compressed * static_cast<double>(H5Dget_storage_size(dataset));
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

Shape Dataset::shape() const {
  const auto lock = lock_library();
  const Handle space(check(H5Dget_space(handle_.id()), *file_, "read a shape"), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.id());
  if (rank < 0 || rank > Shape::max_rank) fail_file(*file_, "read a shape", "too many dimensions");
  std::array<hsize_t, Shape::max_rank> sizes{};
  check(H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr), *file_, "read a shape");
  std::array<std::int64_t, Shape::max_rank> extents{};
  std::copy(sizes.begin(), sizes.end(), extents.begin());
  return Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(rank)));
}

DType Dataset::dtype() const {
  const auto lock = lock_library();
  const Handle type(check(H5Dget_type(handle_.id()), *file_, "read a type"), H5Tclose);
  for (const DType candidate : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    if (H5Tequal(type.id(), type_of(candidate).id()) > 0) return candidate;
  }
  fail_file(*file_, "read a dataset", "its type is not one that Lyceum writes");
}

Shape Dataset::chunk() const {
  const auto lock = lock_library();
  const Handle list(check(H5Dget_create_plist(handle_.id()), *file_, "read a layout"), H5Pclose);
  std::array<hsize_t, Shape::max_rank> sizes{};
  const int rank = H5Pget_layout(list.id()) == H5D_CHUNKED ? H5Pget_chunk(list.id(), Shape::max_rank, sizes.data()) : 0;
  std::array<std::int64_t, Shape::max_rank> extents{};
  std::copy(sizes.begin(), sizes.end(), extents.begin());
  return Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(std::max(rank, 0))));
}

namespace {

/// Calls f(slice, first) for parts of the box that lie one behind the other in row-major memory, from element `first`
/// on, of about `most` elements: of a dataset in chunks, whole ones where the box begins at one.
template <class F>
void for_each_slice(const Box& box, const Shape& chunk, std::int64_t most, F&& f, int axis = 0,
                    std::int64_t first = 0) {
  if (axis >= chunk.rank() || box.extent.size() <= most) return f(box, first);
  const std::int64_t row = box.extent.size() / box.extent[axis];
  const std::int64_t rows = std::max(most / row / chunk[axis], std::int64_t{1}) * chunk[axis];
  for (std::int64_t at = 0; at < box.extent[axis]; at += rows) {
    Box slice = box;
    slice.offset[axis] += at;
    slice.extent[axis] = std::min(rows, box.extent[axis] - at);
    if (slice.extent[axis] == 1) {
      for_each_slice(slice, chunk, most, f, axis + 1, first + at * row);
    } else {
      f(slice, first + at * row);
    }
  }
}

}  // namespace

void Dataset::write(const Box& box, DType type, const void* values) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  constexpr std::int64_t slice_bytes = 4 << 20;  // other threads that use the library wait for no more
  if (box.extent.size() * size <= slice_bytes) return write_slice(box, type, values);
  for_each_slice(box, chunk(), slice_bytes / size, [&](const Box& slice, std::int64_t first) {
    write_slice(slice, type, static_cast<const std::byte*>(values) + first * size);
  });
}

void Dataset::write_slice(const Box& box, DType type, const void* values) {
  if (box.extent.size() == 0) return;
  const auto lock = lock_library();
  const Handle space(check(H5Dget_space(handle_.id()), *file_, "write a dataset"), H5Sclose);
  select(space.id(), box);
  check(H5Dwrite(handle_.id(), type_of(type).id(), space_of(box.extent).id(), space.id(), H5P_DEFAULT, values), *file_,
        "write a dataset");
}

void Dataset::read(const Box& box, DType type, void* values) const {
  read_into(box, type, values, box.extent, Box::whole(box.extent).offset);
}

void Dataset::read_into(const Box& box, DType type, void* values, const Shape& shape, const Shape& offset) const {
  if (box.extent.size() == 0) return;
  const auto lock = lock_library();
  const Handle space(check(H5Dget_space(handle_.id()), *file_, "read a dataset"), H5Sclose);
  select(space.id(), box);
  const Handle memory = space_of(shape);
  select(memory.id(), {offset, box.extent});
  check(H5Dread(handle_.id(), type_of(type).id(), memory.id(), space.id(), H5P_DEFAULT, values), *file_,
        "read a dataset");
}

void Dataset::resize(const Shape& shape) {
  const auto lock = lock_library();
  check(H5Dset_extent(handle_.id(), sizes_of(shape).data()), *file_, "resize a dataset");
}

void Dataset::make_scale(const std::string& name) {
  const auto lock = lock_library();
  check(H5DSset_scale(handle_.id(), name.c_str()), *file_, "make a dimension scale");
}

void Dataset::attach_scale(int axis, const Dataset& scale) {
  const auto lock = lock_library();
  check(H5DSattach_scale(handle_.id(), scale.handle_.id(), static_cast<unsigned>(axis)), *file_,
        "attach a dimension scale");
}

void Dataset::label(int axis, const std::string& text) {
  const auto lock = lock_library();
  check(H5DSset_label(handle_.id(), static_cast<unsigned>(axis), text.c_str()), *file_, "label a dimension");
}

File File::start(const std::filesystem::path& path, Mode mode) {
  const auto lock = lock_library();
  prepare_library();
  auto state = std::make_shared<FileState>();
  state->path = path;
  state->writable = mode != Mode::open;
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  use_driver(access.id(), state->error);
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_LATEST);
  H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG);
  const std::string name = path.string();
  Handle file(mode == Mode::create
                  ? H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id())
                  : H5Fopen(name.c_str(), mode == Mode::edit ? H5F_ACC_RDWR : H5F_ACC_RDONLY, access.id()),
              H5Fclose);
  check(file.id(), *state, mode == Mode::create ? "create" : "open");
  return File(std::move(state), std::move(file));
}

File File::create(const std::filesystem::path& path) { return start(path, Mode::create); }
File File::open(const std::filesystem::path& path) { return start(path, Mode::open); }
File File::edit(const std::filesystem::path& path) { return start(path, Mode::edit); }
File::~File() = default;

void File::close() {
  const auto lock = lock_library();
  const int result = handle_.close();
  check(result, *file_, "write");
}

const std::filesystem::path& File::path() const { return file_->path; }

bool File::has(const std::string& path) const {
  const auto lock = lock_library();
  // Every link on the way must exist before the library may be asked about the last one.
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

Dataset File::create_virtual(const std::string& path, DType type, const Shape& shape,
                             std::span<const VirtualSource> sources) {
  const auto lock = lock_library();
  const std::string action = "create virtual dataset " + path;
  const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(list.id(), false);
  if (type == DType::f32 || type == DType::f64) {
    const float missing = std::numeric_limits<float>::quiet_NaN();
    H5Pset_fill_value(list.id(), H5T_NATIVE_FLOAT, &missing);
  }
  const Handle space = space_of(shape);
  for (const VirtualSource& source : sources) {
    select(space.id(), source.box);
    check(H5Pset_virtual(list.id(), space.id(), source.file.c_str(), source.dataset.c_str(),
                         space_of(source.box.extent).id()),
          *file_, action);
  }
  H5Sselect_all(space.id());
  const std::int64_t id =
      H5Dcreate2(handle_.id(), path.c_str(), type_of(type).id(), space.id(), link_list().id(), list.id(), H5P_DEFAULT);
  return Dataset(file_, Handle(check(id, *file_, action), H5Dclose));
}

Dataset File::dataset(const std::string& path) const {
  const auto lock = lock_library();
  const std::string action = "open dataset " + path;
  Handle dataset(check(H5Dopen2(handle_.id(), path.c_str(), H5P_DEFAULT), *file_, action), H5Dclose);
  if (lies_elsewhere(dataset.id(), file_of(handle_.id())))
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
