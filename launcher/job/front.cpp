#include "launcher/job/front.hpp"

#include "launcher/output/console.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/signal_inbox.hpp"
#include "launcher/process/terminal_loan.hpp"
#include "launcher/watch/status_socket.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/exit_status.hpp"
#include "runtime/base/os/process_stat.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

timespec timespec_of(Clock::duration time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {seconds.count(), std::chrono::nanoseconds(time - seconds).count()};
}

class Front {
 public:
  Front(const FrontRules& rules, const Voice& voice, const sigset_t& original_mask,
        bool children_ignored)
      : core_(rules),
        console_(nullptr, voice),
        original_mask_(original_mask),
        children_ignored_(children_ignored),
        earlier_children_(child_processes()),
        owns_terminal_(::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) {
    termios settings{};
    if (terminal_ && ::tcgetattr(terminal_.get(), &settings) == 0) settings_ = settings;
  }

  int run(const std::function<int(const AgentSeat&)>& agent);

 private:
  [[noreturn]] void become_agent(pid_t front, const std::function<int(const AgentSeat&)>& agent);
  void reap();
  int next_signal() const;
  bool stands_still() const;
  void suspend();
  std::vector<pid_t> left_behind() const;

  void step(const front::Event& event);
  void execute(const front::HandOn& effect);
  void execute(const front::Look& effect) { look_at_ = effect.at; }
  void execute(const front::Warn& effect);
  void execute(const front::KillAgent& effect);
  void execute(const front::Sweep& effect);
  void execute(const front::PutTerminalBack& effect);
  void execute(const front::ClearAway&) { remove_dead_places(); }
  void execute(const front::TellLost& effect);
  void execute(const front::Exit& effect) { exit_code_ = effect.code; }

  void say(const std::string& sentence) { console_.say(sentence, Level::error); }

  front::FrontCore core_;
  Console console_;
  sigset_t original_mask_;
  bool children_ignored_;
  /// Children of the program that exec'd us, as in `sshd & exec dlaunch ...`: not ours to kill.
  std::vector<pid_t> earlier_children_;
  bool owns_terminal_;
  unique_fd terminal_ = controlling_terminal();
  std::optional<termios> settings_;  ///< The terminal's settings before the job.
  pid_t agent_ = -1;
  std::optional<int> agent_status_;
  std::optional<Clock::time_point> look_at_;  ///< The time of the next look at the agent.
  std::optional<int> exit_code_;
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
  while (!exit_code_) {
    const int number = next_signal();
    if (number == SIGCHLD) {
      reap();
    } else if (number == SIGTSTP) {
      suspend();
    } else if (number > 0) {
      step(front::Signalled{number});
    }
    if (agent_status_) {
      step(front::AgentEnded{exit_status_from_wait(*agent_status_)});
    } else if (look_at_ && *look_at_ <= Clock::now()) {
      step(front::Looked{stands_still()});
    }
  }
  return *exit_code_;
}

void Front::step(const front::Event& event) {
  for (const auto& effect : core_.step(event, Clock::now())) {
    std::visit([this](const auto& e) { execute(e); }, effect);
  }
}

void Front::become_agent(pid_t front, const std::function<int(const AgentSeat&)>& agent) {
  terminal_.reset();
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, front_lost_signal(), 0, 0, 0);
  // A front that died before prctl() was called will cause no signal.
  if (::getppid() != front) ::_exit(exit_code::internal);
  become_subreaper();
  ::_exit(agent({front, original_mask_, children_ignored_, owns_terminal_}));
}

/// -1 when it is time to look at the agent.
int Front::next_signal() const {
  sigset_t all;
  sigfillset(&all);
  if (!look_at_) return ::sigwaitinfo(&all, nullptr);
  const auto rest = std::max(*look_at_ - Clock::now(), Clock::duration::zero());
  const timespec time = timespec_of(rest);
  return ::sigtimedwait(&all, nullptr, &time);
}

void Front::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == agent_) agent_status_ = status;
  }
}

/// sigqueue() fails only while thousands of signals are pending; one more would then be no news.
void Front::execute(const front::HandOn& effect) {
  ::sigqueue(agent_, handed_on_signal(), {.sival_int = effect.number});
}

/// Whether the agent is stopped, or hangs and has not taken our signal.
bool Front::stands_still() const {
  const auto stat = process_stat(agent_);
  return is_in_signal_mask(agent_, "ShdPnd", handed_on_signal()) ||
         (stat && (stat->state == 'T' || stat->state == 't'));
}

void Front::execute(const front::Warn& effect) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(effect.left);
  const std::string name = signal_name(effect.signal);
  const std::string sooner = kills_when_repeated(effect.signal) ? ", or at another " + name : "";
  say("the agent (pid " + std::to_string(agent_) + ") stands still and does not take " + name +
      "; it is killed, with all that it started, in " + duration_text(left) + sooner);
}

void Front::execute(const front::KillAgent& effect) {
  look_at_.reset();
  const bool third = effect.why == front::KillAgent::Why::third_signal;
  say("the agent (pid " + std::to_string(agent_) + ") " +
      (third ? "did not end at the third signal" : "stands still") +
      "; it is killed, with all that it started");
  ::kill(agent_, SIGKILL);
}

void Front::execute(const front::TellLost& effect) {
  say("the agent (pid " + std::to_string(agent_) + ") was " + describe(effect.status) +
      "; its workers were killed");
}

/// Ctrl-Z. The agent never stops (its workers' liveness depends on it), but the shell has to see
/// us stopped.
void Front::suspend() {
  const pid_t group = owns_terminal_ ? ::tcgetpgrp(STDIN_FILENO) : -1;
  const bool worker_has_terminal = group > 0 && group != ::getpgrp();
  if (worker_has_terminal) {
    ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
  } else {
    step(front::Signalled{SIGTSTP});
  }
  ::raise(SIGSTOP);
  // From here on somebody has continued us, in the foreground or in the background.
  if (!worker_has_terminal) return;
  if (::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) ::tcsetpgrp(STDIN_FILENO, group);
  ::kill(-group, SIGCONT);
}

/// All that we started is gone. If the terminal's foreground group is gone, too, it was one of
/// ours; and a program that failed may have left the terminal without echo.
void Front::execute(const front::PutTerminalBack& effect) {
  const pid_t group = terminal_ ? ::tcgetpgrp(terminal_.get()) : -1;
  if (group > 0 && ::kill(-group, 0) != 0 && errno == ESRCH) {
    ::tcsetpgrp(terminal_.get(), ::getpgrp());
  }
  if (!effect.failed || !settings_ || ::tcgetpgrp(terminal_.get()) != ::getpgrp()) return;
  ::tcsetattr(terminal_.get(), TCSANOW, &*settings_);
}

std::vector<pid_t> Front::left_behind() const {
  std::vector<pid_t> children = child_processes();
  std::erase_if(children, [this](pid_t pid) {
    return std::find(earlier_children_.begin(), earlier_children_.end(), pid) !=
           earlier_children_.end();
  });
  return children;
}

/// The children of a killed process become ours, so this goes on until none is left.
void Front::execute(const front::Sweep& effect) {
  const auto deadline = Clock::now() + effect.timeout;
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
    const timespec left_time = timespec_of(rest);
    ::sigtimedwait(&child_signal, nullptr, &left_time);
  }
}

}  // namespace

int run_front(const FrontRules& rules, const Voice& voice,
              const std::function<int(const AgentSeat&)>& agent) {
  sigset_t blocked, original;
  sigfillset(&blocked);
  bool children_ignored = false;
  for (const int number : ignored_signals()) {
    // An ignored SIGCHLD would hide our children's ends; the other two signals are our own.
    if (number == SIGCHLD || number == front_lost_signal() || number == handed_on_signal()) {
      ::signal(number, SIG_DFL);
      children_ignored = children_ignored || number == SIGCHLD;
    } else {
      // An ignored signal stays unblocked: blocked, it would be queued for us.
      sigdelset(&blocked, number);
    }
  }
  ::sigprocmask(SIG_SETMASK, &blocked, &original);
  return Front(rules, voice, original, children_ignored).run(agent);
}

}  // namespace dlaunch::launcher
