#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include "cuda_runtime_api.h"

namespace host_cuda {

/// Work of a stream: does what is possible without blocking and returns true once all of it is done. It is called again
/// until then.
using Work = std::function<bool()>;

/// Appends work to a stream, or to the graph into which the stream is being captured. Work of a stream normally runs at
/// once if the stream has no earlier work. With HOST_CUDA_LAZY in the environment it runs only when the host queries
/// the device, waits for it or uses the default stream (null), so code that forgets to wait reads no results.
void enqueue(cudaStream_t stream, Work work);
/// Runs the work of all streams as far as possible.
void advance();
/// Adds `works`, which may be negative, to the number of items of work in streams that wait for other ranks, see
/// load().
void await_others(int works);
/// Loads the kernel and returns true, or returns false with a message. With CUDA_MODULE_LOADING=LAZY a GPU loads code
/// at a kernel's first launch, which may wait for the whole device. If work on the device waits for other ranks,
/// loading is therefore rejected: these ranks may be waiting for this one.
bool load(const void* kernel);
/// True if CUDA_MODULE_LOADING was EAGER when the process first called CUDA.
bool loads_eagerly();
/// Waits until all streams are empty. Streams that are being captured fail, as with CUDA: their captures become
/// invalid.
void wait_for_device();
/// Advances the clock of events by `time`, as if work had taken that much longer.
void pretend_to_take(std::chrono::nanoseconds time);
/// Returns the number of copies from the device to the host so far that were added to streams. Code that waits for a
/// result of the device makes one.
int copies_to_host();
/// Copies between any two locations in memory of host or device.
void copy(void* to, const void* from, std::size_t bytes);

}  // namespace host_cuda
