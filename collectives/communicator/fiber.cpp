#include "collectives/communicator/fiber.hpp"

#include <cerrno>
#include <cstdint>
#include <system_error>

#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

/// Saves the registers that a function must preserve on the stack, and the stack's pointer in
/// `top`, then restores them from `other`. A function that is called there for the first time gets
/// `value`. The mask of signals and the floating-point mode stay the thread's: they are not ours to
/// change, and would take the system call that swapcontext(3) makes each time.
extern "C" void dlaunch_switch_stack(void** top, void* other, void* value) noexcept;

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.hidden dlaunch_switch_stack
.globl dlaunch_switch_stack
.type dlaunch_switch_stack, @function
dlaunch_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  movq %rdx, %rdi
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size dlaunch_switch_stack, .-dlaunch_switch_stack
)");
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.hidden dlaunch_switch_stack
.globl dlaunch_switch_stack
.type dlaunch_switch_stack, %function
dlaunch_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  mov x0, x2
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size dlaunch_switch_stack, .-dlaunch_switch_stack
)");
#else
#error "dlaunch_switch_stack has to be written for this processor"
#endif

namespace dlaunch {
namespace {

/// Words that dlaunch_switch_stack takes from a stack, and which of them is the place to go to.
#if defined(__x86_64__)
constexpr std::size_t saved_words = 8, place_word = 6;  // Above it is the place to return to: none.
#else
constexpr std::size_t saved_words = 20, place_word = 11;
#endif

/// Several times the room for a TLS handshake under a sanitizer. Unused pages cost nothing.
constexpr std::size_t stack_bytes = 512u << 10;

std::size_t guard_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

Fiber::Fiber(Function function, void* argument) : function_(function), argument_(argument) {
  const std::size_t guard = guard_bytes();
  void* memory = ::mmap(nullptr, guard + stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  ::mprotect(memory, guard, PROT_NONE);
  memory_ = memory;
  fiber_.stack = static_cast<std::byte*>(memory) + guard;
  fiber_.stack_bytes = stack_bytes;
  auto* const saved =
      static_cast<std::uintptr_t*>(memory) + (guard + stack_bytes) / sizeof(void*) - saved_words;
  saved[place_word] = reinterpret_cast<std::uintptr_t>(&Fiber::enter);
  fiber_.top = saved;
#ifdef __SANITIZE_THREAD__
  fiber_.tsan = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef __SANITIZE_THREAD__
  __tsan_destroy_fiber(fiber_.tsan);
#endif
  ::munmap(memory_, guard_bytes() + stack_bytes);
}

bool Fiber::resume() {
#ifdef __SANITIZE_THREAD__
  thread_.tsan = __tsan_get_current_fiber();
#endif
  state_ = State::running;
  leave(thread_, fiber_);
  return state_ == State::resting;
}

void Fiber::suspend() noexcept {
  state_ = State::suspended;
  leave(fiber_, thread_);
}

/// Returns when it is switched back to.
[[gnu::noinline]] void Fiber::leave(Side& from, Side& to) noexcept {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(to.tsan, 0);
#endif
  dlaunch_switch_stack(&from.top, to.top, this);
#ifdef __SANITIZE_ADDRESS__
  // Tells the fiber which stack it is called from.
  __sanitizer_finish_switch_fiber(from.fake_stack, &to.stack, &to.stack_bytes);
#endif
}

void Fiber::enter(void* fiber) noexcept { static_cast<Fiber*>(fiber)->loop(); }

void Fiber::loop() noexcept {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &thread_.stack, &thread_.stack_bytes);
#endif
  for (;;) {
    function_(argument_);
    state_ = State::resting;
    leave(fiber_, thread_);
  }
}

}  // namespace dlaunch
