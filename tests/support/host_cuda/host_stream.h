#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include "cuda_runtime_api.h"

namespace host_cuda {

/// A stream's work: does what can be done without waiting; whether that was all. Called again until then.
using Work = std::function<bool()>;

/// Runs the work when the stream has nothing before it: at once as a rule. With HOST_CUDA_LAZY in the environment it
/// waits for somebody to ask how far the device is, so that whoever forgets to wait finds nothing done.
void enqueue(cudaStream_t stream, Work work);
/// Runs all streams as far as they come.
void advance();
/// `works` more, or fewer, of what is in streams wait for other ranks.
void await_others(int works);
/// Whether the kernel can be launched now. Where code is loaded at a kernel's first launch, CUDA_MODULE_LOADING=LAZY,
/// that may wait for the whole device: with work on it that waits for other ranks it is refused, as they may wait for
/// this one.
bool load(const void* kernel);
/// What CUDA_MODULE_LOADING says when the process first calls CUDA.
bool loads_eagerly();
/// Until all streams have nothing left. Spoils what is being recorded.
void wait_for_device();
/// Moves the events' clock on: work seems to have taken longer than it did.
void pretend_to_take(std::chrono::nanoseconds time);
/// Between any two places of the host's and the device's memory.
void copy(void* to, const void* from, std::size_t bytes);

}  // namespace host_cuda
