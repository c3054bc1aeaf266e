#pragma once

namespace lyceum {

/// Whether this program runs its tests on a GPU, or on the CPU: its main says so, and the same objects serve both.
bool tests_run_on_gpu();

}  // namespace lyceum
