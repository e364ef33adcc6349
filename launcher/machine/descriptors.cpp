#include "launcher/machine/descriptors.hpp"

#include "runtime/base/os/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

/// Pipes and sockets that a worker costs while it runs, with some to spare.
constexpr int descriptors_per_worker = 7;
constexpr int descriptors_of_agent = 64;

}  // namespace

void reserve_descriptors(int workers) {
  const unique_fd highest(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC,
                                  descriptors_of_agent + descriptors_per_worker * workers));
}

rlimit raise_descriptor_limit() {
  rlimit original{};
  ::getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

}  // namespace dlaunch::launcher
