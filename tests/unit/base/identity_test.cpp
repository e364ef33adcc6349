// Which processes can hand memory to each other, by what the kernel says of them.
#include "runtime/base/os/identity.hpp"

#include "runtime/base/os/unique_fd.hpp"
#include "tests/support/skipped.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <string>

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;

namespace {

struct Identity {
  std::string kernel, memory;
};

/// That of a child of a process that has done this first; nullopt where it may not.
std::optional<Identity> identity_after(const std::function<bool()>& change) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const unique_fd reads(ends[0]);
  unique_fd writes(ends[1]);
  const pid_t changed = ::fork();
  if (changed == 0) {
    if (!change()) ::_exit(1);
    // A new pid namespace is that of the children.
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string told = kernel_id() + "\n" + memory_id() + "\n";
      ::_exit(::write(writes.get(), told.data(), told.size()) == static_cast<ssize_t>(told.size())
                  ? 0
                  : 1);
    }
    int status = 1;
    ::_exit(child > 0 && ::waitpid(child, &status, 0) == child && status == 0 ? 0 : 1);
  }
  writes.reset();
  std::string told(4096, '\0');
  const auto size = ::read(reads.get(), told.data(), told.size());
  int status = 1;
  REQUIRE(::waitpid(changed, &status, 0) == changed);
  if (status != 0 || size <= 0) return std::nullopt;
  const auto first = told.find('\n');
  return Identity{told.substr(0, first),
                  told.substr(first + 1, told.find('\n', first + 1) - first - 1)};
}

struct Change {
  const char* name;
  std::function<bool()> make;
  bool parts_memory;
};

std::function<bool()> unshares(int spaces) {
  return [spaces] { return ::unshare(spaces) == 0; };
}

}  // namespace

TEST_CASE("memory is for processes of one kernel, network, pid and user namespace, and user") {
  const auto own = identity_after([] { return true; });
  REQUIRE(own);
  if (own->memory.empty()) return testing::skipped("/proc tells no namespaces here");
  CHECK(own->kernel == kernel_id());
  CHECK(own->memory == memory_id());
  CHECK(own->memory.starts_with(own->kernel + "/"));
  const Change changes[] = {
      {"a network of its own", unshares(CLONE_NEWNET), true},
      {"pids of its own", unshares(CLONE_NEWPID), true},
      {"users of its own", unshares(CLONE_NEWUSER), true},
      {"another user", [] { return ::setresuid(65534, 65534, 65534) == 0; }, true},
      {"another effective user", [] { return ::seteuid(65534) == 0; }, true},
      {"a host name of its own", unshares(CLONE_NEWUTS), false},
      {"mounts of its own", unshares(CLONE_NEWNS), false},
  };
  std::size_t made = 0;
  for (const Change& change : changes) {
    CAPTURE(std::string(change.name));
    const auto identity = identity_after(change.make);
    if (!identity) continue;
    ++made;
    CHECK(identity->kernel == own->kernel);
    CHECK((identity->memory != own->memory) == change.parts_memory);
    CHECK(!identity->memory.empty());
  }
  if (made < std::size(changes)) testing::skipped("only root may have all of these namespaces");
}
