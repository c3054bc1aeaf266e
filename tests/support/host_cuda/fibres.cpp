#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "device_memory.h"
#include "switch_stack.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace lyceum {

alignas(1024) thread_local std::byte launched_shared_memory[host_cuda_shared_bytes];

}  // namespace lyceum

namespace host_cuda {

namespace {

constexpr std::size_t stack_bytes = std::size_t{256} << 10;
constexpr unsigned warp = 32;

[[noreturn]] void abort_with(const char* reason) {
  std::fprintf(stderr, "host_cuda: %s (block %u, %u, thread %u)\n", reason, blockIdx.x, blockIdx.y, threadIdx.x);
  std::abort();
}

/// Unused stacks; take() returns the one that was used last. So threads that end without waiting all use the same
/// stack, which is in the cache. Stacks are never freed.
class Stacks {
 public:
  std::byte* take() {
    if (free_.empty()) return fresh();
    std::byte* stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void put(std::byte* stack) { free_.push_back(stack); }

 private:
  /// Allocates a stack and returns its upper end.
  std::byte* fresh() {
    void* space = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) abort_with("not enough memory for a thread's stack");
    // Staggers the stacks by cache lines; otherwise their ends would all map to the same few lines of the cache.
    return static_cast<std::byte*>(space) + stack_bytes - made_++ % 32 * 128;
  }
  std::vector<std::byte*> free_;
  std::size_t made_ = 0;
};

struct Fibre {
  enum class State { runs, waits_for_warp, waits_for_block, done };
  State state = State::done;
  unsigned exchanges = 0;
  std::byte* top = nullptr;  // upper end of its stack while it has one
  void* stack = nullptr;     // stack pointer at its last switch
  std::uint64_t offered[2];  // used alternately: a lane may be one exchange ahead of another, never two

  void prepare() {
    state = State::runs;
    exchanges = 0;
  }
  /// Prepares the stack so that the next switch to this fibre calls `function`, which must not return.
  void start(std::byte* on, void (*function)()) {
    top = on;
    stack = prepare_stack(top, function);
  }
};

/// One pass over the threads [first, end) of a warp.
struct Pass {
  unsigned first = 0, end = 0, taken = 0;
  bool forwards = true;
};

/// The block that is running, with the fibres of its threads.
struct Block {
  std::vector<Fibre> fibres;
  Stacks stacks;
  Pass pass{};
  void* scheduler = nullptr;
  Fibre* running = nullptr;
  const std::function<void()>* body = nullptr;
};
Block only_block;
Block& block() { return only_block; }

void enter();

/// Makes the next runnable thread of the pass the running one. Returns null if there is none.
Fibre* take_next() {
  Block& own = block();
  Pass& pass = own.pass;
  while (pass.taken < pass.end - pass.first) {
    const unsigned i = pass.taken++, thread = pass.forwards ? pass.first + i : pass.end - 1 - i;
    Fibre& fibre = own.fibres[thread];
    if (fibre.state != Fibre::State::runs) continue;
    if (!fibre.top) fibre.start(own.stacks.take(), enter);
    threadIdx = {thread, 0, 0};
    return own.running = &fibre;
  }
  return nullptr;
}

/// Sets the state of the running thread and switches to the next one directly, without the scheduler.
void wait_as(Fibre::State state) {
  Fibre& self = *block().running;
  self.state = state;
  const Fibre* const next = take_next();
  lyceum_switch_stack(&self.stack, next ? next->stack : block().scheduler);
}

void enter() {
  (*block().body)();
  Fibre& self = *block().running;
  self.state = Fibre::State::done;
  lyceum_switch_stack(&self.stack, block().scheduler);  // the scheduler may give this stack to another thread
}

void run_pass() {
  while (const Fibre* const next = take_next()) {
    lyceum_switch_stack(&block().scheduler, next->stack);
    Fibre& last = *block().running;
    if (last.state == Fibre::State::done) block().stacks.put(std::exchange(last.top, nullptr));
  }
}

/// Runs the threads [first, end) of a warp until each has ended or waits for the block. Returns true if any waits. The
/// order is reversed each time the threads have met, so that results that depend on the order differ.
bool run_warp(unsigned first, unsigned end, bool forwards) {
  Fibre* const fibres = block().fibres.data();
  for (;; forwards = !forwards) {
    block().pass = {.first = first, .end = end, .forwards = forwards};
    run_pass();
    unsigned at_warp = 0, at_block = 0;
    for (unsigned t = first; t < end; ++t) {
      at_warp += fibres[t].state == Fibre::State::waits_for_warp;
      at_block += fibres[t].state == Fibre::State::waits_for_block;
    }
    if (at_warp == 0) return at_block > 0;
    if (at_warp != end - first) abort_with("threads wait at a barrier that others do not reach");
    for (unsigned t = first; t < end; ++t) fibres[t].state = Fibre::State::runs;
  }
}

void run_block(unsigned threads) {
  auto& fibres = block().fibres;
  if (fibres.size() < threads) fibres.resize(threads);
  for (unsigned t = 0; t < threads; ++t) fibres[t].prepare();
  const unsigned warps = (threads + warp - 1) / warp;
  for (bool forwards = true, waits = true; waits; forwards = !forwards) {
    waits = false;
    for (unsigned i = 0; i < warps; ++i) {
      const unsigned first = (forwards ? i : warps - 1 - i) * warp;
      if (run_warp(first, std::min(first + warp, threads), forwards)) waits = true;
    }
    for (unsigned t = 0; t < threads; ++t) {  // threads that have ended need not reach the barrier
      if (fibres[t].state == Fibre::State::waits_for_block) fibres[t].state = Fibre::State::runs;
    }
  }
}

}  // namespace

void run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& thread) {
  const dim3& grid = config.gridDim;
  if (config.blockDim.y != 1 || config.blockDim.z != 1) abort_with("blocks of one dimension only");
  if (config.dynamicSmemBytes > sizeof lyceum::launched_shared_memory) abort_with("too much shared memory");
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

void wait_for_block() { wait_as(Fibre::State::waits_for_block); }
void wait_for_warp() { wait_as(Fibre::State::waits_for_warp); }

std::uint64_t exchange(std::uint64_t value, unsigned lane) {
  Fibre& self = *block().running;
  const unsigned first = threadIdx.x / warp * warp, turn = self.exchanges++ % 2;
  self.offered[turn] = value;
  wait_for_warp();
  return block().fibres[first + lane].offered[turn];
}

}  // namespace host_cuda
