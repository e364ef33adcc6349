// What the kernel tells of a process' end: its core file, and whether memory ran out.
#include "launcher/machine/core_file.hpp"
#include "launcher/machine/memory_kills.hpp"
#include "tests/support/temporary_folder.hpp"

#include <csignal>
#include <fstream>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

CoreRule rule(std::string pattern) {
  return {.pattern = std::move(pattern), .working_directory = "/jobs"};
}

}  // namespace

TEST_CASE("where a core file is looked for") {
  CHECK(core_files_of(rule("core"), 12, SIGSEGV) == "/jobs/core");
  auto appends = rule("core");
  appends.appends_pid = true;
  CHECK(core_files_of(appends, 12, SIGSEGV) == "/jobs/core.12");
  CHECK(core_files_of(rule("/cores/%e.%p.%s%%"), 12, SIGSEGV) == "/cores/*.12.11%");
  CHECK(core_files_of(rule("/cores/[x]%"), 12, SIGSEGV) == "/cores/\\[x]");
  CHECK(core_files_of(rule("|/usr/lib/systemd/systemd-coredump %P"), 12, SIGSEGV).empty());
  CHECK(core_files_of(rule(""), 12, SIGSEGV).empty());
}

TEST_CASE("the core file is the newest since the start") {
  const testing::TemporaryFolder folder;
  const auto path = (folder.path() / "x.12").string();
  std::ofstream(path) << "core";
  const auto here = rule((folder.path() / "%e.%p").string());
  const auto now = WallClock::now();
  CHECK(find_core_file(here, 12, SIGSEGV, now - std::chrono::hours(1)) == path);
  CHECK(find_core_file(here, 12, SIGSEGV, now + std::chrono::hours(1)).empty());
  CHECK(find_core_file(here, 13, SIGSEGV, now - std::chrono::hours(1)).empty());
}

TEST_CASE("what is said of a core that is no file") {
  CHECK(core_note(rule("|/usr/lib/systemd/systemd-coredump %P"), 12, true) ==
        "taken by systemd-coredump: coredumpctl debug 12");
  CHECK(core_note(rule("|/usr/share/apport/apport -p%p"), 12, true) == "taken by apport");
  CHECK(core_note(rule("core"), 12, true) ==
        "written by the pattern 'core' (/proc/sys/kernel/core_pattern), in the directory where the "
        "rank was");
  auto none = rule("core");
  CHECK(core_note(none, 12, false).empty());
  none.limit_is_zero = true;
  CHECK(core_note(none, 12, false) == "none, for its size limit is 0 (ulimit -c unlimited)");
  CHECK(dumps_core(SIGSEGV));
  CHECK_FALSE(dumps_core(SIGKILL));
  CHECK_FALSE(read_core_rule().working_directory.empty());
}

TEST_CASE("where the kernel counts what it kills for lack of memory") {
  using Files = std::vector<std::string>;
  CHECK(kill_count_files("0::/user.slice/job\n") ==
        Files{"/sys/fs/cgroup/user.slice/job/memory.events", "/sys/fs/cgroup/memory.events",
              "/proc/vmstat"});
  CHECK(kill_count_files("9:cpu,memory:/job\n1:name=systemd:/\n0::/\n") ==
        Files{"/sys/fs/cgroup/memory/job/memory.oom_control",
              "/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events",
              "/proc/vmstat"});
  CHECK(kill_count_files("nonsense") == Files{"/proc/vmstat"});
}

TEST_CASE("the count is the number after its name") {
  CHECK(kill_count_in("low 0\noom 3\noom_kill 2\noom_group_kill 0\n") == 2);
  CHECK(kill_count_in("oom_kill_disable 0\nunder_oom 0\noom_kill 1") == 1);
  CHECK_FALSE(kill_count_in("oom_kill_disable 0\nunder_oom 0\n").has_value());
  CHECK_FALSE(kill_count_in("oom_kill x\n").has_value());
  const auto count = read_kill_count();
  CHECK((!count || count->count >= 0));
}
