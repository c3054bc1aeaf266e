#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_runtime.h"
#include "device_memory.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace lyceum {

alignas(1024) thread_local std::byte launched_shared_memory[host_cuda_shared_bytes];

}  // namespace lyceum

/// Puts the registers that a function must keep on the stack, leaves the stack's pointer in *from, and goes on where
/// the stack `to` was left. (swapcontext also asks the system for the signal mask, which takes a hundred times longer.)
extern "C" void host_cuda_switch(void** from, void* to);
#ifndef __x86_64__
#error "host_cuda: fibres are written for x86-64"
#endif
asm(R"(
.text
.type host_cuda_switch, @function
host_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size host_cuda_switch, . - host_cuda_switch
)");

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
  unsigned exchanges = 0;
  void* stack = nullptr;     // as it was left
  std::uint64_t offered[2];  // by turns: a lane may be one exchange ahead of another, never two

  /// Lets the next switch to this fibre call `function`, which must not return.
  void prepare(unsigned thread, void (*function)()) {
    if (!memory) memory = take_stack();
    // Stacks begin at different cache lines, or all would meet in the same few lines of the cache.
    std::byte* top = memory + stack_bytes - thread % 32 * 128;
    top -= 2 * sizeof(void*);  // a call would have left its return address on a multiple of 16
    std::memcpy(top, &function, sizeof function);
    stack = top - 6 * sizeof(void*);
    state = State::runs;
    exchanges = 0;
  }

 private:
  static std::byte* take_stack() {
    void* space = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) give_up("no memory for a thread's stack");
    return static_cast<std::byte*>(space);
  }
  std::byte* memory = nullptr;  // kept until the process ends
};

/// One block at a time: the fibres of its threads.
struct Block {
  std::vector<Fibre> fibres;
  void* scheduler = nullptr;
  Fibre* running = nullptr;
  const std::function<void()>* body = nullptr;
};
Block& block() {
  static Block only;
  return only;
}

void pause(Fibre::State state) {
  Fibre& self = *block().running;
  self.state = state;
  host_cuda_switch(&self.stack, block().scheduler);
}

void enter() {
  (*block().body)();
  pause(Fibre::State::done);
}

void resume(unsigned thread) {
  Fibre& fibre = block().fibres[thread];
  threadIdx = {thread, 0, 0};
  block().running = &fibre;
  host_cuda_switch(&block().scheduler, fibre.stack);
}

/// Sets those going that wait for nobody any more; whether there are any.
bool release(unsigned threads) {
  auto& fibres = block().fibres;
  bool released = false;
  for (unsigned first = 0; first < threads; first += warp) {
    const auto begin = fibres.begin() + first, end = fibres.begin() + std::min(first + warp, threads);
    if (!std::all_of(begin, end, [](const Fibre& f) { return f.state == Fibre::State::waits_for_warp; })) continue;
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
  for (unsigned t = 0; t < threads; ++t) fibres[t].prepare(t, enter);
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

void run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& thread) {
  const dim3& grid = config.gridDim;
  if (config.blockDim.y != 1 || config.blockDim.z != 1) give_up("blocks of one dimension only");
  if (config.dynamicSmemBytes > sizeof lyceum::launched_shared_memory) give_up("too much shared memory");
  const DeviceAccess access;
  gridDim = grid;
  blockDim = config.blockDim;
  block().body = &thread;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        std::memset(lyceum::launched_shared_memory, 0xff, config.dynamicSmemBytes);
        run_block(config.blockDim.x);
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
