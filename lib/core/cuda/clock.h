#pragma once

#include <memory>

#include "core/cuda_stream.h"
#include "core/profile.h"

namespace lyceum {

/// Stamps are events in the stream's queue; scopes are NVTX ranges too.
std::shared_ptr<ProfileClock> make_cuda_clock(CUstream_st* stream);

}  // namespace lyceum
