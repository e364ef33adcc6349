#include "launcher/process/spawn.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// The new process runs on this process' memory until it execs, beside a parent that stands still
// (CLONE_VM | CLONE_VFORK, as posix_spawn does it): no page table is copied, so a start costs the
// same however big the launcher is. docs/decisions/0004-processes.md compares.
// A sanitizer's bookkeeping would be the parent's.
#if defined(__clang__)
#define DLAUNCH_UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define DLAUNCH_UNCHECKED __attribute__((no_sanitize("address,thread,undefined")))
#endif

namespace dlaunch::launcher {
namespace {

constexpr std::size_t child_stack_bytes = 64u << 10;

/// Keeps the calling thread, and so a new child, on the core it runs on; exec then moves the
/// program to wherever there is room.
class CoreHold {
 public:
  explicit CoreHold(bool holds) {
    if (!holds) return;
    const int core = ::sched_getcpu();
    if (core < 0 || core >= CPU_SETSIZE) return;
    if (::sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) return;
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<std::size_t>(core), &here);
    held_ = ::sched_setaffinity(0, sizeof here, &here) == 0;
  }
  ~CoreHold() { release(); }
  CoreHold(const CoreHold&) = delete;
  CoreHold& operator=(const CoreHold&) = delete;

  /// For the calling thread.
  DLAUNCH_UNCHECKED void release() const {
    if (held_) ::sched_setaffinity(0, sizeof allowed_, &allowed_);
  }

 private:
  cpu_set_t allowed_{};
  bool held_ = false;
};

struct Child {
  const SpawnRequest* request;
  pid_t parent;
  const CoreHold* hold;
  int error;  ///< Written by the child; shared memory, the parent reads it after the child is off.
};

/// Makes `from` descriptor `to`. dup2 onto itself would leave close-on-exec set.
DLAUNCH_UNCHECKED bool place(int from, int to) {
  if (from < 0) return true;
  if (from == to) return ::fcntl(to, F_SETFD, 0) == 0;
  // Not dup2: ThreadSanitizer would note it as done to the parent's descriptors.
  return ::syscall(SYS_dup3, from, to, 0) == to;
}

/// Only what is safe between vfork and exec: no allocation, no lock, no return to the caller's
/// frame.
DLAUNCH_UNCHECKED int child_main(void* argument) {
  Child& child = *static_cast<Child*>(argument);
  const SpawnRequest& request = *child.request;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  // A parent that died before the line above will never kill us.
  if (::getppid() != child.parent) ::_exit(127);
  child.hold->release();
  bool ok =
      request.cores == nullptr || ::sched_setaffinity(0, request.cores_bytes, request.cores) == 0;
  for (int fd = 0; fd < 3 && ok; ++fd) ok = place(request.stdio[fd], fd);
  ok = ok && place(request.control.ours, request.control.number) &&
       place(request.pmi.ours, request.pmi.number);
  ok = ok && (request.directory == nullptr || ::chdir(request.directory) == 0);
  if (ok) {
    // It may be no terminal, or not ours to give: then the program runs in the background.
    if (request.foreground) ::tcsetpgrp(0, ::getpid());
    if (request.descriptors != nullptr) ::setrlimit(RLIMIT_NOFILE, request.descriptors);
    if (request.ignore_children) ::signal(SIGCHLD, SIG_IGN);
    ::sigprocmask(SIG_SETMASK, &request.mask, nullptr);
    ::execve(request.path, request.argv, request.environ);
  }
  child.error = errno;
  ::_exit(127);
}

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer takes clone for a fork, whose child has memory of its own, and then loses track
// of the parent's locks. It does not intercept clone's other name.
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* argument, ...);
constexpr auto clone_unseen = &__clone;
#else
constexpr auto clone_unseen = &::clone;
#endif

/// clone3 into a cgroup; glibc has no call for it. (A process that moves there after its birth
/// first waits some milliseconds until all processors have switched tasks.) On the other stack the
/// child calls `child_main`, which does not return. Returns as clone does, with errno negated.
DLAUNCH_UNCHECKED long clone_into([[maybe_unused]] int cgroup, [[maybe_unused]] void* stack_base,
                                  [[maybe_unused]] std::size_t stack_bytes,
                                  [[maybe_unused]] Child* child) {
#if defined(__x86_64__)
  clone_args arguments{};
  arguments.flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.stack = reinterpret_cast<std::uintptr_t>(stack_base);
  arguments.stack_size = stack_bytes;
  arguments.cgroup = static_cast<std::uint64_t>(cgroup);
  long result = SYS_clone3;
  asm volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "movq %[child], %%rdi\n\t"
      "call *%[function]\n\t"
      "ud2\n\t"
      "1:"
      : "+a"(result)
      : "D"(&arguments), "S"(sizeof arguments), [child] "r"(child), [function] "r"(&child_main)
      : "rcx", "r11", "memory", "cc");
  return result;
#else
  return -ENOSYS;
#endif
}

/// One stack for all children of this thread: they use it one after the other.
class ChildStack {
 public:
  ChildStack()
      : base_(::mmap(nullptr, child_stack_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {}
  ~ChildStack() {
    if (base_ != MAP_FAILED) ::munmap(base_, child_stack_bytes);
  }
  ChildStack(const ChildStack&) = delete;
  ChildStack& operator=(const ChildStack&) = delete;

  void* base() const { return base_; }
  void* top() const {
    return base_ == MAP_FAILED ? nullptr : static_cast<char*>(base_) + child_stack_bytes;
  }

 private:
  void* base_;
};

}  // namespace

bool StartTrial::keeps_core() const noexcept {
  if (starts_ < 2 * tries) return starts_ >= tries;
  return times_[true].without_longest() <= times_[false].without_longest();
}

void StartTrial::took(Clock::duration time) noexcept {
  if (starts_ < 2 * tries) {
    Times& times = times_[keeps_core()];
    times.sum += time;
    times.longest = std::max(times.longest, time);
  }
  if (++starts_ == cycle) *this = {};
}

SpawnResult spawn(const SpawnRequest& request) {
  const ChildStack stack;
  if (stack.top() == nullptr) return {-1, ENOMEM};
  const CoreHold hold(request.keeps_core);
  Child child{&request, ::getpid(), &hold, 0};
  int pid = -1;
  if (request.cgroup >= 0) {
    pid = static_cast<int>(clone_into(request.cgroup, stack.base(), child_stack_bytes, &child));
  }
  if (pid < 0) {
    pid = clone_unseen(child_main, stack.top(), CLONE_VM | CLONE_VFORK | SIGCHLD, &child);
  }
  if (pid < 0) return {-1, errno};
  if (child.error == 0) return {pid, 0};
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return {-1, child.error};
}

}  // namespace dlaunch::launcher
