#pragma once

#include <functional>
#include <memory>

#include "core/cuda_stream.h"
#include "core/profile.h"

namespace lyceum {

/// Stamps are events in the stream's queue; scopes are NVTX ranges too. `wait` waits until what it is given is true.
std::shared_ptr<ProfileClock> make_cuda_clock(CUstream_st* stream,
                                              std::function<void(const std::function<bool()>& reached)> wait);

}  // namespace lyceum
