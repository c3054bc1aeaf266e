#pragma once

#include <hdf5.h>

#include <cerrno>
#include <memory>

namespace lyceum::hdf5 {

/// The first system error met while writing a file, 0 for none.
struct WriteError {
  int number = 0;
  void record(int error) {
    if (number == 0) number = error;
  }
};

/// Makes `access` (a file access list) read and write through Lyceum's own file driver.
///
/// Why a driver: HDF5 1.10 reports a full disk for chunked data only when the file closes, then keeps the broken file
/// half open and crashes at exit. This driver never lets HDF5 see a failed write: it records the first errno in
/// `error`, drops what follows, and HDF5 closes its file in good order; the caller looks at `error`. It costs no copy,
/// unlike an image in memory, and names the real cause (ENOSPC, EFBIG, EIO, EDQUOT …).
void use_driver(hid_t access, std::shared_ptr<WriteError> error);

}  // namespace lyceum::hdf5
