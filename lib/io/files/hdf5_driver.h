#pragma once

#include <hdf5.h>

#include <cerrno>
#include <memory>

#include "io/files/held_writes.h"

namespace lyceum::hdf5 {

/// The first system error (errno) of writing a file; 0 if there was none.
struct WriteError {
  int number = 0;
  void record(int error) {
    if (number == 0) number = error;
  }
};

/// Makes files that are opened with `access` (a file access property list) use Lyceum's own file driver, which stores
/// the first error of writing in `error`.
///
/// Without it, HDF5 1.10 reports a full disk for chunked data only when the file is closed, then keeps the broken file
/// half open, and crashes at exit. This driver never lets HDF5 see a failed write: it records the first errno, discards
/// all later writes, and lets HDF5 close the file normally. The caller must check `error`. The driver makes no copy of
/// the data, unlike a file image in memory, and preserves the cause (ENOSPC, EFBIG, EIO, EDQUOT …).
///
/// If `held` is given, the driver reads the file with these changes, and adds what is written to the beginning of the
/// file to them instead of writing it. Then held->end is the size of the file after it is closed.
void use_driver(hid_t access, std::shared_ptr<WriteError> error, std::shared_ptr<HeldWrites> held = nullptr);

}  // namespace lyceum::hdf5
