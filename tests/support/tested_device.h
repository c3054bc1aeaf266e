#pragma once

namespace lyceum {

/// True if this program runs its tests on a GPU, false on the CPU. Defined in the program's main file, so both kinds of
/// program can share object files.
bool tests_run_on_gpu();

}  // namespace lyceum
