#include "io/files/hdf5_driver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

#include "io/files/open_regular.h"
#include "io/files/uninterrupted.h"

namespace lyceum::hdf5 {
namespace {

/// An open file of the driver.
struct Driver : H5FD_t {
  int descriptor = -1;
  haddr_t allocated = 0;  // the end of allocation (EOA) of HDF5
  haddr_t size = 0;       // of the file on disk, or with its held changes if it is larger then
  dev_t device = 0;
  ino_t inode = 0;
  std::shared_ptr<WriteError> error;  // shared, since HDF5 may keep the file open longer than its owner exists
  std::shared_ptr<HeldWrites> held;   // null if all writes go to the disk
  bool writable = false;
};

Driver& self(H5FD_t* file) { return *static_cast<Driver*>(file); }
const Driver& self(const H5FD_t* file) { return *static_cast<const Driver*>(file); }

/// The driver's part of a file access property list.
struct Access {
  std::shared_ptr<WriteError> error;
  std::shared_ptr<HeldWrites> held;
};
void* copy_access(const void* access) { return new (std::nothrow) Access(*static_cast<const Access*>(access)); }
herr_t free_access(void* access) {
  delete static_cast<Access*>(access);
  return 0;
}

H5FD_t* open_file(const char* name, unsigned flags, hid_t access, haddr_t) {
  const auto* info = static_cast<const Access*>(H5Pget_driver_info(access));
  int mode = (flags & H5F_ACC_RDWR) ? O_RDWR : O_RDONLY;
  if (flags & H5F_ACC_TRUNC) mode |= O_TRUNC;
  if (flags & H5F_ACC_CREAT) mode |= O_CREAT;
  if (flags & H5F_ACC_EXCL) mode |= O_EXCL;
  const int descriptor = open_regular(name, mode, mode == O_RDONLY ? Links::followed : Links::refused);
  struct stat status {};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    if (info) info->error->number = errno;  // of the last attempt: HDF5 first tries to open a file that it is to create
    if (descriptor >= 0) ::close(descriptor);
    return nullptr;
  }
  auto* file = new (std::nothrow) Driver{};
  if (!file) {
    ::close(descriptor);
    return nullptr;
  }
  file->descriptor = descriptor;
  file->size = static_cast<haddr_t>(status.st_size);
  file->device = status.st_dev;
  file->inode = status.st_ino;
  file->error = info ? info->error : std::make_shared<WriteError>();
  if (info) file->held = info->held;
  if (file->held) file->size = std::max(file->size, static_cast<haddr_t>(file->held->end));
  file->writable = mode != O_RDONLY;
  file->error->number = 0;  // failed attempts do not count
  return file;
}

herr_t close_file(H5FD_t* file) {
  // Network file systems report errors of earlier writes at close.
  if (::close(self(file).descriptor) != 0 && errno != EINTR) self(file).error->record(errno);
  delete &self(file);
  return 0;
}

int compare(const H5FD_t* a, const H5FD_t* b) {
  const Driver &x = self(a), &y = self(b);
  if (x.device != y.device) return x.device < y.device ? -1 : 1;
  if (x.inode != y.inode) return x.inode < y.inode ? -1 : 1;
  if (x.held != y.held) return x.held < y.held ? -1 : 1;  // other changes make it another file
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t allocated(const H5FD_t* file, H5FD_mem_t) { return self(file).allocated; }
herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  self(file).allocated = address;
  if (self(file).held && self(file).writable) self(file).held->end = static_cast<std::int64_t>(address);
  return 0;
}
haddr_t size_of_file(const H5FD_t* file, H5FD_mem_t) { return self(file).size; }

herr_t read_bytes(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t address, size_t count, void* buffer) {
  constexpr std::string_view local_heap = "HEAP";  // signature of a local heap
  const std::string_view beginning(static_cast<const char*>(buffer), std::min(count, local_heap.size()));
  const std::span<std::byte> all(static_cast<std::byte*>(buffer), count);
  const auto begin = static_cast<std::int64_t>(address);
  auto* bytes = static_cast<char*>(buffer);
  while (count > 0) {
    const ssize_t got =
        uninterrupted([&] { return pread(self(file).descriptor, bytes, count, static_cast<off_t>(address)); });
    if (got < 0) return -1;
    if (got == 0) {  // allocated but never written
      std::memset(bytes, 0, count);
      break;
    }
    bytes += got;
    address += static_cast<haddr_t>(got);
    count -= static_cast<size_t>(got);
  }
  if (self(file).held) self(file).held->replace(begin, all);
  if (type != H5FD_MEM_LHEAP || beginning != local_heap) return 0;
  // A local heap has the names of external files or of the members of an old-style group. Lyceum writes neither. HDF5
  // reads beyond the end of damaged heaps, so they are rejected.
  H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_VFL, H5E_READERROR,
           "external files, and groups of HDF5 before 1.8, are not supported: write the file with libver='latest'");
  return -1;
}

herr_t write_bytes(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t count, const void* buffer) {
  Driver& driver = self(file);
  const auto* bytes = static_cast<const char*>(buffer);
  if (driver.held && driver.error->number == 0) {
    const std::span<const std::byte> all(static_cast<const std::byte*>(buffer), count);
    const std::int64_t held = driver.held->hold(driver.descriptor, static_cast<std::int64_t>(address), all);
    if (held < 0) {
      driver.error->record(errno);
      return 0;
    }
    bytes += held;
    address += static_cast<haddr_t>(held);
    count -= static_cast<size_t>(held);
  }
  while (count > 0 && driver.error->number == 0) {
    const ssize_t put =
        uninterrupted([&] { return pwrite(driver.descriptor, bytes, count, static_cast<off_t>(address)); });
    if (put <= 0) {
      driver.error->record(put < 0 ? errno : EIO);
      return 0;
    }
    bytes += put;
    address += static_cast<haddr_t>(put);
    count -= static_cast<size_t>(put);
    driver.size = std::max(driver.size, address);
  }
  return 0;
}

herr_t truncate_file(H5FD_t* file, hid_t, hbool_t) {
  Driver& driver = self(file);
  if (driver.allocated == driver.size || driver.error->number != 0) return 0;
  // The beginning of a file with held changes must stay as it is, so such a file only grows.
  if (driver.held && driver.allocated < std::max(driver.size, static_cast<haddr_t>(driver.held->limit()))) return 0;
  if (uninterrupted([&] { return ftruncate(driver.descriptor, static_cast<off_t>(driver.allocated)); }) != 0) {
    driver.error->record(errno);
  } else {
    driver.size = driver.allocated;
  }
  return 0;
}

hid_t register_driver() {
  H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION  // HDF5 1.14
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(512);  // the first value for private drivers
#endif
  driver.name = "lyceum";
  driver.maxaddr = (haddr_t{1} << 62) - 1;
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(Access);
  driver.fapl_copy = copy_access;
  driver.fapl_free = free_access;
  driver.open = open_file;
  driver.close = close_file;
  driver.cmp = compare;
  driver.query = query;
  driver.get_eoa = allocated;
  driver.set_eoa = set_allocated;
  driver.get_eof = size_of_file;
  driver.read = read_bytes;
  driver.write = write_bytes;
  driver.truncate = truncate_file;
  const H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(map), std::end(map), driver.fl_map);
  return H5FDregister(&driver);
}

}  // namespace

void use_driver(hid_t access, std::shared_ptr<WriteError> error, std::shared_ptr<HeldWrites> held) {
  static const hid_t driver = register_driver();
  const Access info{std::move(error), std::move(held)};
  H5Pset_driver(access, driver, &info);
}

}  // namespace lyceum::hdf5
