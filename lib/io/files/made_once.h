#pragma once

#include <functional>
#include <string>

#include "io/files/partial_file.h"

namespace lyceum {

/// Makes a file that several processes need and may ask for at the same time. Returns when `usable` returns true. While
/// it returns false, one process calls `write` with the temporary file of `path` and then publishes it, replacing an
/// older file; the others wait. If that process ends before, another one writes. The processes exclude each other with
/// flock(); on a file system whose locks do not extend to other machines, each machine writes the file, so `write` must
/// always write the same bytes. Throws a failed Error if the file cannot be written or is not usable after it was
/// written, and rethrows the errors of `write`. `waits` is called about every 50 ms while another process writes.
void make_once(
    const std::string& path, const std::function<bool()>& usable, const std::function<void(PartialFile&)>& write,
    const std::function<void()>& waits = [] {});

}  // namespace lyceum
