#pragma once

namespace lyceum {

/// Makes the heap of this process return memory to the system: allocations of 1 MiB or more are mapped, and unused
/// memory at the end of the heap is given back. By default, the C library keeps up to 64 MiB of what was freed. Call it
/// first in `main`.
void limit_heap();
/// Returns the unused pages of the heap to the system. For calls after work that a process does only once.
void return_unused_heap();

}  // namespace lyceum
