#pragma once

#include "runtime/base/os/exit_status.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "tests/support/free_port.hpp"

#include <dlaunch/error.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace dlaunch::process_test {

/// Every wait in these tests ends here at the latest; a test that meets it has failed.
constexpr auto patience = std::chrono::seconds(20);

using testing::free_port;
/// How often the word is in the text.
int count(std::string_view text, std::string_view word);
/// A word that no other process on this machine has on its command line.
std::string unique_token();
/// The processes whose command line has this word: the launcher itself, and all `victim TOKEN`.
std::vector<pid_t> processes_with(std::string_view token);
/// Waits until none of them is left; false at the deadline.
bool all_gone(std::string_view token);
std::vector<pid_t> children_of(pid_t pid);
/// The process' number in its innermost pid namespace.
pid_t pid_inside(pid_t pid);
/// Waits until the process has no zombie among its children; false at the deadline.
bool zombies_reaped(pid_t parent);
/// Path of the program whose processes are killed here.
std::string victim();
/// Path of the launcher.
std::string dlaunch_path();

/// A running `dlaunch`, its output read through pipes. Killed when it goes out of scope.
class Job {
 public:
  using Environment = std::map<std::string, std::string>;
  explicit Job(std::vector<std::string> arguments, const Environment& environment = {},
               std::string program = dlaunch_path());
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t pid() const { return pid_; }
  /// The front's only child.
  pid_t agent() const;
  void send(int signal_number) const;
  /// Reads until stdout and stderr have this text so often; false at the deadline or at the end.
  bool saw(std::string_view text, int times = 1);
  /// Reads what has been written until now.
  void catch_up();
  /// Reads everything and waits; fails the test at the deadline.
  ExitStatus wait();
  /// Nobody reads stdout any more.
  void close_stdout() { out_pipe_.reset(); }

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  bool read_some(Clock::time_point deadline);

  pid_t pid_ = -1;
  unique_fd out_pipe_, err_pipe_;
  std::string out_, err_;
};

}  // namespace dlaunch::process_test
