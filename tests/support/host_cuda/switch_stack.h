#pragma once

#include <cstddef>
#include <cstring>

#ifndef __x86_64__
#error "switch_stack: written for x86-64"
#endif

/// Pushes the callee-saved registers on the stack, stores the stack pointer in *from, and continues with the stack
/// `to`. (swapcontext also reads the signal mask with a system call, which takes a hundred times longer, and
/// AddressSanitizer then clears its state of the whole stack.)
extern "C" void lyceum_switch_stack(void** from, void* to);
asm(R"(
.text
.type lyceum_switch_stack, @function
lyceum_switch_stack:
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
.size lyceum_switch_stack, . - lyceum_switch_stack
)");

namespace host_cuda {

/// Prepares the stack with the upper end `top`, a multiple of 16, so that the first switch to the returned pointer
/// calls `function`, which must not return.
inline void* prepare_stack(std::byte* top, void (*function)()) {
  std::byte* place = top - 2 * sizeof(void*);  // after a call, the return address is at a multiple of 16
  std::memcpy(place, &function, sizeof function);
  return place - 6 * sizeof(void*);
}

}  // namespace host_cuda
