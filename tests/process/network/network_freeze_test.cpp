// Nodes that stand still for a while, and clocks that jump.
#include "tests/process/network/network_job.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/skipped.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;
using testing::is_full;

void require_first_epoch(NetworkJob& job) {
  for (int node = 0; node < job.size(); ++node) REQUIRE_MESSAGE(job.runs(node, 1), job.said());
}

void require_undisturbed(NetworkJob& job) {
  REQUIRE_MESSAGE(job.all_go_on(), job.said());
  CHECK_MESSAGE(!contains(job.said(), "lost"), job.said());
  CHECK_MESSAGE(!contains(job.said(), "place 2"), job.said());
}

/// A file whose content is the wall clock's error, and the environment in which it counts.
class FalseClock {
 public:
  FalseClock() {
    set("+0");
    environment = {{"LD_PRELOAD", library()},
                   {"FAKETIME_TIMESTAMP_FILE", path_},
                   {"FAKETIME_NO_CACHE", "1"},
                   {"FAKETIME_DONT_FAKE_MONOTONIC", "1"},
                   {"FAKETIME_DISABLE_SHM", "1"}};
  }
  ~FalseClock() { std::filesystem::remove(path_); }
  static std::string library() {
    for (const auto& entry : std::filesystem::directory_iterator("/usr/lib")) {
      const auto file = entry.path() / "faketime" / "libfaketime.so.1";
      if (std::filesystem::exists(file)) return file;
    }
    return "";
  }
  void set(const std::string& error) const {
    const std::string fresh = path_ + ".new";
    std::ofstream(fresh) << error << "\n";
    std::filesystem::rename(fresh, path_);
  }
  /// The day of the year, as a program sees it.
  std::string today() const {
    Job date({"+%j"}, environment, "date");
    CHECK(date.wait().code == 0);
    return date.out();
  }

  Job::Environment environment;

 private:
  std::string path_ = std::filesystem::temp_directory_path() / unique_token();
};

}  // namespace

TEST_CASE("a node that stands still: for a short time, and for too long") {
  Network network(3);
  NetworkJob::Strings options;
  if (is_full()) options = {"--rdzv-conf", default_lease};
  NetworkJob job(network, "1:3", options);
  for (int node = 0; node < 3; ++node) job.add();
  require_first_epoch(job);

  job.signal_all(2, SIGSTOP);
  REQUIRE(job.goes_on(0, is_full() ? 30 : 10));
  job.signal_all(2, SIGCONT);
  require_undisturbed(job);

  job.signal_all(2, SIGSTOP);
  const Stretch noticed("from the stop until the others go on without the node");
  REQUIRE_MESSAGE(job[0].saw("node c is lost"), job.said());
  REQUIRE_MESSAGE((job.runs(0, 2) && job.runs(1, 2)), job.said());
  noticed.ended();
  // Longer than the node's own patience with a silent rendezvous.
  REQUIRE(job.goes_on(0, 45));
  for (int i = 0; is_full() && i < 4; ++i) REQUIRE(job.goes_on(0, 130));
  const Stretch back("from its waking until all three are at work");
  job.signal_all(2, SIGCONT);
  for (int node = 0; node < 3; ++node) REQUIRE_MESSAGE(job.runs(node, 3), job.said());
  back.ended();
  job.stop();
  job.check_places();
}

TEST_CASE("the rendezvous stands still for longer than a lease: nobody is given up for that") {
  Network network(3);
  NetworkJob job(network, "1:3");
  for (int node = 0; node < 3; ++node) job.add();
  require_first_epoch(job);
  const pid_t host = job[0].agent();
  const Stretch still("the agent that hosts stood still");
  ::kill(host, SIGSTOP);
  REQUIRE(job.goes_on(1, 45));
  ::kill(host, SIGCONT);
  still.ended();
  require_undisturbed(job);
  job.stop();
  job.check_places();
}

TEST_CASE("the wall clock of every node jumps a day ahead, and two back") {
  if (FalseClock::library().empty()) {
    return testing::skipped("libfaketime is missing (package faketime)");
  }
  const FalseClock clock;
  const std::string day = clock.today();
  Network network(2);
  NetworkJob job(network, "2");
  for (int node = 0; node < 2; ++node) job.add({}, clock.environment);
  require_first_epoch(job);
  for (const char* error : {"+1d", "-1d"}) {
    clock.set(error);
    CHECK(clock.today() != day);
    require_undisturbed(job);
  }
  job.stop();
}

TEST_CASE("nodes whose monotonic clocks are a day apart") {
  Network network(2);
  NetworkJob job(network, "2", {}, 20);
  job.add();
  const std::string day = std::to_string(24 * 60 * 60);
  job.add_under({"unshare", "--time", "--monotonic", day, "--boottime", day});
  CHECK(job[1].wait().code == 0);
  CHECK(job[0].wait().code == 0);
  CHECK_MESSAGE(!contains(job.said(), "lost"), job.said());
}

}  // namespace dlaunch::process_test
