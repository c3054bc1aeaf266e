#include "core/fibre.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/error.h"

// Functions of AddressSanitizer, null in programs without it. They report stack switches and make memory accessible
// again.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** left, const void* bottom, std::size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* left, const void** bottom_before, std::size_t* size_before);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* begin, std::size_t size);
}

namespace lyceum {

namespace {

/// Address space of a stack, as much as the main thread usually has. Pages that are not touched take no memory.
constexpr std::size_t stack_bytes = std::size_t{8} << 20;

/// Saves the current context in `from` and continues at `to`; returns when another call continues at `from`. Replaces
/// swapcontext(), before which AddressSanitizer prints a warning.
[[gnu::noinline, gnu::no_sanitize_address]] void switch_context(ucontext_t& from, const ucontext_t& to) {
  volatile bool back = false;
  if (getcontext(&from) != 0) fail(ExitCode::failed, "getcontext failed: cannot suspend the current fibre");
  if (back) return;
  back = true;
  setcontext(&to);
  fail(ExitCode::failed, "setcontext failed: cannot switch to the fibre");
}

}  // namespace

struct Fibre::State {
  std::function<void()> body;
  std::byte* stack = nullptr;  // above an inaccessible guard page
  ucontext_t inside{}, outside{};
  bool started = false, ended = false;
  // State of AddressSanitizer for each side of the switch.
  void *inside_left = nullptr, *outside_left = nullptr;
  const void* outside_bottom = nullptr;
  std::size_t outside_size = 0;

  static std::size_t guard() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
  void make_stack();
  void run();
  void leave(void** left);
  static void enter(unsigned high, unsigned low);
};

void Fibre::State::make_stack() {
  void* const space = mmap(nullptr, guard() + stack_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  require(space != MAP_FAILED, "cannot map {} B for the stack of a fibre", stack_bytes);
  stack = static_cast<std::byte*>(space) + guard();
  require(mprotect(space, guard(), PROT_NONE) == 0, "cannot protect the guard page of a fibre's stack");
}

void Fibre::State::leave(void** left) {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(left, outside_bottom, outside_size);
  switch_context(inside, outside);
}

void Fibre::State::run() {
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(nullptr, &outside_bottom, &outside_size);
  body();
  ended = true;
  leave(nullptr);  // never returns: the fibre has ended
}

/// Entry point for makecontext(), which can pass only arguments of type int: the two halves of a State's address.
void Fibre::State::enter(unsigned high, unsigned low) {
  const std::uint64_t address = (std::uint64_t{high} << 32) | low;
  reinterpret_cast<State*>(static_cast<std::uintptr_t>(address))->run();
}

Fibre::Fibre(std::function<void()> body) : state_(std::make_unique<State>()) { state_->body = std::move(body); }

Fibre::~Fibre() {
  if (!state_->stack) return;
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(state_->stack, stack_bytes);
  munmap(state_->stack - State::guard(), State::guard() + stack_bytes);
}

bool Fibre::started() const { return state_->started; }
bool Fibre::ended() const { return state_->ended; }

void Fibre::resume() {
  State& own = *state_;
  require(!own.ended, "cannot resume a fibre that has ended");
  if (!own.started) {
    own.make_stack();
    require(getcontext(&own.inside) == 0, "getcontext failed: cannot create a fibre");
    own.inside.uc_stack.ss_sp = own.stack;
    own.inside.uc_stack.ss_size = stack_bytes;
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(&own);
    makecontext(&own.inside, reinterpret_cast<void (*)()>(&State::enter), 2, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address));
    own.started = true;
  }
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&own.outside_left, own.stack, stack_bytes);
  switch_context(own.outside, own.inside);
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(own.outside_left, nullptr, nullptr);
}

void Fibre::pause() {
  State& own = *state_;
  own.leave(&own.inside_left);
  if (__sanitizer_finish_switch_fiber) {
    __sanitizer_finish_switch_fiber(own.inside_left, &own.outside_bottom, &own.outside_size);
  }
}

}  // namespace lyceum
