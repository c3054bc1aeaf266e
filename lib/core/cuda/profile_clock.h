#pragma once

#include <functional>
#include <memory>

#include "core/cuda_stream.h"
#include "core/profile.h"

namespace lyceum {

/// Returns a clock whose stamps are events in the stream's queue and whose scopes are also NVTX ranges. `wait(reached)`
/// must block until `reached()` is true. The clock does not own the stream: stamp() must not be called after the stream
/// has been destroyed. times() may be called then, if `wait` allows it, since all work is done.
std::shared_ptr<ProfileClock> make_cuda_clock(CUstream_st* stream,
                                              std::function<void(const std::function<bool()>& reached)> wait);

}  // namespace lyceum
