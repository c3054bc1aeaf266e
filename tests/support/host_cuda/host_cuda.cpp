#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace host_cuda {

namespace {

constexpr std::size_t stack_bytes = std::size_t{256} << 10;
constexpr unsigned warp = 32;

[[noreturn]] void give_up(const char* reason) {
  std::fprintf(stderr, "host_cuda: %s (block %u, %u, thread %u)\n", reason, blockIdx.x, blockIdx.y, threadIdx.x);
  std::abort();
}

struct Fibre {
  enum class State { runs, waits_for_warp, waits_for_block, done };
  State state = State::done;
  ucontext_t context;
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
  unsigned exchanges = 0;
  std::uint64_t offered[2];  // by turns: a lane may be one exchange ahead of another, never two
};

/// One block at a time: the fibres of its threads.
struct Block {
  std::vector<Fibre> fibres;
  ucontext_t scheduler;
  Fibre* running = nullptr;
  const std::function<void()>* body = nullptr;
};
Block& block() {
  static Block only;
  return only;
}

void enter() {
  (*block().body)();
  block().running->state = Fibre::State::done;
}

void pause(Fibre::State state) {
  Fibre& self = *block().running;
  self.state = state;
  swapcontext(&self.context, &block().scheduler);
}

void resume(unsigned thread) {
  Fibre& fibre = block().fibres[thread];
  threadIdx = {thread, 0, 0};
  block().running = &fibre;
  swapcontext(&block().scheduler, &fibre.context);
}

/// Sets those going that wait for nobody any more; whether there are any.
bool release(unsigned threads) {
  auto& fibres = block().fibres;
  bool released = false;
  for (unsigned first = 0; first < threads; first += warp) {
    const auto begin = fibres.begin() + first, end = fibres.begin() + std::min(first + warp, threads);
    const auto waiting =
        std::count_if(begin, end, [](const Fibre& f) { return f.state == Fibre::State::waits_for_warp; });
    if (waiting == 0) continue;
    if (waiting != end - begin) continue;
    std::for_each(begin, end, [](Fibre& f) { f.state = Fibre::State::runs; });
    released = true;
  }
  if (released) return true;
  const auto end = fibres.begin() + threads;
  const auto at_barrier =
      std::count_if(fibres.begin(), end, [](const Fibre& f) { return f.state == Fibre::State::waits_for_block; });
  const auto done = std::count_if(fibres.begin(), end, [](const Fibre& f) { return f.state == Fibre::State::done; });
  if (at_barrier == 0 || at_barrier + done != static_cast<long>(threads)) return false;
  for (auto f = fibres.begin(); f != end; ++f) {
    if (f->state == Fibre::State::waits_for_block) f->state = Fibre::State::runs;
  }
  return true;
}

void run_block(unsigned threads) {
  auto& fibres = block().fibres;
  if (fibres.size() < threads) fibres.resize(threads);
  for (unsigned t = 0; t < threads; ++t) {
    Fibre& fibre = fibres[t];
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.get();
    fibre.context.uc_stack.ss_size = stack_bytes;
    fibre.context.uc_link = &block().scheduler;
    makecontext(&fibre.context, enter, 0);
    fibre.state = Fibre::State::runs;
    fibre.exchanges = 0;
  }
  for (bool forwards = true;; forwards = !forwards) {
    for (unsigned i = 0; i < threads; ++i) {
      const unsigned t = forwards ? i : threads - 1 - i;
      if (fibres[t].state == Fibre::State::runs) resume(t);
    }
    if (release(threads)) continue;
    if (std::all_of(fibres.begin(), fibres.begin() + threads,
                    [](const Fibre& f) { return f.state == Fibre::State::done; }))
      return;
    give_up("threads wait for some that do not come");
  }
}

}  // namespace

void run_grid(const dim3& grid, const dim3& threads, const std::function<void()>& thread) {
  if (threads.y != 1 || threads.z != 1) give_up("blocks of one dimension only");
  gridDim = grid;
  blockDim = threads;
  block().body = &thread;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        run_block(threads.x);
      }
    }
  }
}

void wait_for_block() { pause(Fibre::State::waits_for_block); }
void wait_for_warp() { pause(Fibre::State::waits_for_warp); }

std::uint64_t exchange(std::uint64_t value, unsigned lane) {
  Fibre& self = *block().running;
  const unsigned first = threadIdx.x / warp * warp, turn = self.exchanges++ % 2;
  self.offered[turn] = value;
  wait_for_warp();
  return block().fibres[first + lane].offered[turn];
}

}  // namespace host_cuda

void host_cuda::copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

const char* cudaGetErrorString(cudaError_t code) { return code == cudaErrorMemoryAllocation ? "out of memory" : "?"; }
const char* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "?";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
/// HOST_CUDA_DEVICES, else one.
cudaError_t cudaGetDeviceCount(int* count) {
  const char* devices = std::getenv("HOST_CUDA_DEVICES");
  return *count = devices ? std::atoi(devices) : 1, cudaSuccess;
}
namespace {
int current_device = 0;
}
cudaError_t cudaGetDevice(int* device) { return *device = current_device, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return current_device = device, cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02x:00.0", static_cast<unsigned>(device));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 3, cudaSuccess; }

cudaError_t cudaMalloc(void** block, std::size_t bytes) {
  *block = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!*block) return cudaErrorMemoryAllocation;
  std::memset(*block, 0xff, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* block) {
  host_cuda::wait_for_device();
  return std::free(block), cudaSuccess;
}
cudaError_t cudaHostAlloc(void** block, std::size_t bytes, unsigned) { return cudaMalloc(block, bytes); }
cudaError_t cudaFreeHost(void* block) { return cudaFree(block); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  host_cuda::enqueue(stream, [=] { return host_cuda::copy(to, from, bytes), true; });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* block, int value, std::size_t bytes, cudaStream_t stream) {
  host_cuda::enqueue(stream, [=] { return std::memset(block, value, bytes), true; });
  return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void* block, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t stream) {
  host_cuda::enqueue(stream, [=] {
    for (std::size_t row = 0; row < height; ++row) std::memset(static_cast<char*>(block) + row * pitch, value, width);
    return true;
  });
  return cudaSuccess;
}
