#pragma once

#include <cstddef>
#include <cstring>

#ifndef __x86_64__
#error "switch_stack: written for x86-64"
#endif

/// Pushes the callee-saved registers on the stack, stores the stack pointer in *from, and continues with the stack
/// `to`. (swapcontext also reads the signal mask with a system call, which takes a hundred times longer, and
/// AddressSanitizer then clears its state of the whole stack.) The symbol is local: each object whose source includes
/// this file has its own copy.
extern "C" void lyceum_switch_stack(void** from, void* to);
asm(R"(
.pushsection .text
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
.popsection
)");

namespace host_cuda {

/// Prepares the stack with the upper end `top`, a multiple of 16, so that the first switch to the returned pointer
/// calls `function`, which must not return.
inline void* prepare_stack(std::byte* top, void (*function)()) {
  std::byte* const stack = top - 8 * sizeof(void*);
  std::memset(stack, 0, 8 * sizeof(void*));  // reports of sanitizers end at the null return address and frame pointer
  // `function` is entered with its return address, the last word, 8 bytes below a multiple of 16, as after a call.
  std::memcpy(stack + 6 * sizeof(void*), &function, sizeof function);
  return stack;
}

}  // namespace host_cuda
