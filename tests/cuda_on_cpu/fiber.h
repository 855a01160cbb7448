/* Switching stacks: by hand on x86-64, where it takes nanoseconds, by the C library elsewhere. */
#ifndef CUDA_ON_CPU_FIBER_H
#define CUDA_ON_CPU_FIBER_H

#include <stddef.h>

#ifdef __x86_64__

struct Fiber {
  void *stack_pointer;
};

extern "C" void emu_switch_stacks(void **save, void *load);
/* Saves what a function must preserve on the old stack and takes it from the new one. */
asm(".text\n"
    ".p2align 4\n"
    ".globl emu_switch_stacks\n"
    ".type emu_switch_stacks,@function\n"
    "emu_switch_stacks:\n"
    "  push %rbp\n"
    "  push %rbx\n"
    "  push %r12\n"
    "  push %r13\n"
    "  push %r14\n"
    "  push %r15\n"
    "  mov %rsp,(%rdi)\n"
    "  mov %rsi,%rsp\n"
    "  pop %r15\n"
    "  pop %r14\n"
    "  pop %r13\n"
    "  pop %r12\n"
    "  pop %rbx\n"
    "  pop %rbp\n"
    "  pop %rcx\n"
    "  jmp *%rcx\n" /* a ret would always be predicted wrong */
    ".size emu_switch_stacks,.-emu_switch_stacks\n");

static inline void fiber_switch(Fiber *from, Fiber *to) { emu_switch_stacks(&from->stack_pointer, to->stack_pointer); }

static inline void fiber_make(Fiber *f, char *stack, size_t bytes, void (*entry)()) {
  void **top = reinterpret_cast<void **>(stack + bytes) - 1; /* 8 modulo 16 at the entry, as after a call */
  *top = nullptr;
  *--top = reinterpret_cast<void *>(entry);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  f->stack_pointer = top;
}

#else

#include <ucontext.h>

struct Fiber {
  ucontext_t context;
};

static inline void fiber_switch(Fiber *from, Fiber *to) { swapcontext(&from->context, &to->context); }

static inline void fiber_make(Fiber *f, char *stack, size_t bytes, void (*entry)()) {
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = stack;
  f->context.uc_stack.ss_size = bytes;
  f->context.uc_link = nullptr;
  makecontext(&f->context, entry, 0);
}

#endif
#endif
