// What small calls between two ranks of a node do not do.
#include "tests/process/job.hpp"

#include <doctest/doctest.h>

namespace dlaunch::process_test {

namespace {

std::string ended(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"--standalone", "--nproc-per-node", "2", "--no-python",
                               DLAUNCH_BINARY_DIR "/tests/hot_path_rank"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Job job(all);
  CHECK_MESSAGE(job.wait().code == 0, job.err());
  return job.out();
}

void check_line(const std::string& out, const std::string& line) {
  for (const std::string rank : {"[0] ", "[1] "}) {
    CHECK_MESSAGE(out.find(rank + line + "\n") != std::string::npos, line, "\n", out);
  }
}

}  // namespace

TEST_CASE("small calls allocate nothing, ask for no process number, and run where they are made") {
  const std::string out = ended({});
  for (const std::string name : {"blocking", "messages", "windows", "started"}) {
    check_line(out, name + ": 0 allocations, 0 getpids");
  }
  CHECK_MESSAGE(out.find("[0] isend: done\n") != std::string::npos, out);
  check_line(out, "on the thread that waits or tests: most");
}

TEST_CASE("nor do they in C") {
  const std::string out = ended({"C"});
  for (const std::string name :
       {"messages in C", "windows in C", "exchanges in C", "started in C"}) {
    check_line(out, name + ": 0 allocations, 0 getpids");
  }
}

}  // namespace dlaunch::process_test
