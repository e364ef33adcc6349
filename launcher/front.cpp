#include "launcher/front.hpp"

#include "launcher/exit_status.hpp"
#include "launcher/process_tree.hpp"
#include "launcher/status_socket.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

/// For what was killed to be gone; only a process that hangs in the kernel takes longer. An agent
/// that ended by itself has waited for it already.
constexpr auto sweep_timeout = std::chrono::seconds(5);
constexpr auto second_sweep_timeout = std::chrono::milliseconds(500);
/// The agent stops at the first, kills at the second; at the third we no longer trust the agent.
constexpr int stop_signals_max = 3;

void say(const std::string& sentence) {
  const std::string line = "dlaunch: " + sentence + "\n";
  // Where stderr is gone there is nobody left to tell.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

bool is_stop_signal(int number) {
  return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
}

class Front {
 public:
  explicit Front(const sigset_t& original_mask)
      : original_mask_(original_mask),
        earlier_children_(child_processes()),
        owns_terminal_(::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) {}

  int run(const std::function<int(const AgentSeat&)>& agent);

 private:
  [[noreturn]] void become_agent(pid_t front, const std::function<int(const AgentSeat&)>& agent);
  void serve();
  void reap();
  void hand_on(int number);
  void suspend();
  void take_terminal_back();
  void sweep(Clock::duration timeout);
  std::vector<pid_t> left_behind() const;

  sigset_t original_mask_;
  /// Those of the program that exec'd us, `sshd & exec dlaunch ...`: not ours to kill.
  std::vector<pid_t> earlier_children_;
  bool owns_terminal_;
  pid_t agent_ = -1;
  std::optional<int> agent_status_;
  int stop_signals_ = 0;
};

int Front::run(const std::function<int(const AgentSeat&)>& agent) {
  become_subreaper();
  const pid_t self = ::getpid();
  agent_ = ::fork();
  if (agent_ < 0) {
    say("cannot start the agent process: " + errno_text(errno));
    return exit_code::internal;
  }
  if (agent_ == 0) become_agent(self, agent);
  serve();
  take_terminal_back();
  const ExitStatus status = exit_status_from_wait(*agent_status_);
  sweep(status.signal == 0 ? second_sweep_timeout : sweep_timeout);
  if (status.signal == 0) return status.code;
  remove_dead_places();
  say("the agent (pid " + std::to_string(agent_) + ") was " + describe(status) +
      "; its workers were killed");
  return exit_code::internal;
}

void Front::become_agent(pid_t front, const std::function<int(const AgentSeat&)>& agent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, front_lost_signal(), 0, 0, 0);
  // A front that died before the line above will send no signal.
  if (::getppid() != front) ::_exit(exit_code::internal);
  become_subreaper();
  ::_exit(agent({front, original_mask_, owns_terminal_}));
}

void Front::serve() {
  sigset_t all;
  sigfillset(&all);
  while (!agent_status_) {
    siginfo_t info{};
    const int number = ::sigwaitinfo(&all, &info);
    if (number == SIGCHLD) {
      reap();
    } else if (number == SIGTSTP) {
      suspend();
    } else if (number > 0) {
      hand_on(number);
    }
  }
}

void Front::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == agent_) agent_status_ = status;
  }
}

void Front::hand_on(int number) {
  if (is_stop_signal(number) && ++stop_signals_ >= stop_signals_max) {
    ::kill(agent_, SIGKILL);
    return;
  }
  // Refused only while thousands are pending, and then this one is no news.
  ::sigqueue(agent_, handed_on_signal(), {.sival_int = number});
}

/// Ctrl-Z. The agent never stops (its workers' liveness depends on it), but the shell has to see
/// us stopped.
void Front::suspend() {
  const pid_t group = owns_terminal_ ? ::tcgetpgrp(STDIN_FILENO) : -1;
  const bool worker_has_terminal = group > 0 && group != ::getpgrp();
  if (worker_has_terminal) {
    ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
  } else {
    hand_on(SIGTSTP);
  }
  ::raise(SIGSTOP);
  // From here on somebody has continued us, in the foreground or in the background.
  if (!worker_has_terminal) return;
  if (::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) ::tcsetpgrp(STDIN_FILENO, group);
  ::kill(-group, SIGCONT);
}

void Front::take_terminal_back() {
  if (owns_terminal_) ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
}

std::vector<pid_t> Front::left_behind() const {
  std::vector<pid_t> children = child_processes();
  std::erase_if(children, [this](pid_t pid) {
    return std::find(earlier_children_.begin(), earlier_children_.end(), pid) !=
           earlier_children_.end();
  });
  return children;
}

/// Killing a process hands its children to us, so this goes on until nobody is left.
void Front::sweep(Clock::duration timeout) {
  const auto deadline = Clock::now() + timeout;
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  for (;;) {
    reap();
    const std::vector<pid_t> left = left_behind();
    if (left.empty()) return;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    const auto rest = deadline - Clock::now();
    if (rest <= Clock::duration::zero()) {
      say(std::to_string(left.size()) + " processes (the first is pid " +
          std::to_string(left.front()) + ") do not die of SIGKILL; leaving without them");
      return;
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(rest);
    const timespec left_time{seconds.count(), std::chrono::nanoseconds(rest - seconds).count()};
    ::sigtimedwait(&child_signal, nullptr, &left_time);
  }
}

}  // namespace

int front_lost_signal() { return SIGRTMIN + 4; }
int handed_on_signal() { return SIGRTMIN + 5; }

int run_front(const std::function<int(const AgentSeat&)>& agent) {
  sigset_t all, original;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &original);
  // Whoever started us may have ignored it, and then no child's end could be waited for.
  ::signal(SIGCHLD, SIG_DFL);
  return Front(original).run(agent);
}

}  // namespace dlaunch::launcher
