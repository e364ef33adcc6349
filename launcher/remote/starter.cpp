#include "launcher/remote/starter.hpp"

#include "launcher/output/console.hpp"
#include "launcher/plan/environment.hpp"
#include "launcher/process/input_end.hpp"
#include "launcher/process/program.hpp"
#include "launcher/process/signal_inbox.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/remote/core/starter_core.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch::launcher::remote {
namespace {

namespace asio = boost::asio;

/// When we learn of an ssh's end, its last output may still lie in the pipe, behind a console that
/// blocks.
constexpr auto last_words_timeout = std::chrono::milliseconds(100);

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const auto& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

StarterRules rules_of(const StarterTask& task) {
  StarterRules rules;
  for (const auto& start : task.starts) rules.hosts.push_back(start.host);
  rules.elastic = task.spec.nodes.elastic();
  rules.shutdown_timeout = task.spec.shutdown_timeout;
  return rules;
}

/// The agents colour the prefixes of ranks.
Output::Manner manner_of(const StarterTask& task) {
  return {.redraws = terminal_redraws(task.environment), .voice = task.voice};
}

class Starter : private SignalListener {
 public:
  Starter(const StarterTask& task, const AgentSeat& seat)
      : task_(task),
        seat_(seat),
        signals_(io_, seat.front, *this),
        timer_(io_),
        console_(std::make_unique<Output>(STDOUT_FILENO, STDERR_FILENO, manner_of(task),
                                          [](int, Clock::time_point) {}),
                 task.voice),
        core_(rules_of(task)) {}

  int run() {
    for (const auto& note : task_.spec.notes) console_.say(note, Level::warning);
    asio::post(io_, [this] { start_all(); });
    io_.run();
    return exit_code_ == 0 && console_.incomplete() ? exit_code::internal : exit_code_;
  }

 private:
  /// An ssh, or what is started here in its stead.
  struct Child {
    pid_t pid = 0;    ///< 0 once it has ended.
    unique_fd input;  ///< Our end of its standard input.
  };

  void start_all() {
    children_.resize(task_.starts.size());
    if (task_.spec.ends_with_stdin)
      input_end_.emplace(io_, task_.parent, [this] { feed(Stopped{SIGTERM}); });
    for (std::size_t i = 0; i < children_.size(); ++i) {
      signals_.take_pending();  // Nothing is started after the signal to stop has come.
      start(i);
    }
  }

  void start(std::size_t index) {
    const auto& argv = task_.starts[index].argv;
    const auto path = lookup(task_.environment, "PATH").value_or("/usr/bin:/bin");
    const auto found = find_program(argv.front(), std::string(path));
    if (closed_) return feed(NotStarted{index, exit_code::unreachable, ""});
    if (found.error != 0) {
      return feed(NotStarted{index, exit_code::not_found,
                             "there is no program " + in_quotes(argv.front()) + " (--ssh)"});
    }
    int input[2], out[2], err[2];
    if (::pipe2(input, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 ||
        ::pipe2(err, O_CLOEXEC) != 0) {
      return feed(NotStarted{index, exit_code::internal, "no pipe: " + errno_text(errno)});
    }
    Child& child = children_[index];
    const unique_fd theirs[] = {unique_fd(input[0]), unique_fd(out[1]), unique_fd(err[1])};
    child.input.reset(input[1]);
    if (!task_.secret.empty() && !hand_over(child.input.get())) {
      return feed(NotStarted{index, exit_code::internal, "no pipe: " + errno_text(errno)});
    }
    std::vector<Output::Source> sources(2);
    sources[0].pipe.reset(out[0]);
    sources[1].pipe.reset(err[0]);
    sources[1].to = Stream::err;
    sources[1].carries_errors = true;
    sources[1].told.emplace(shown_);
    for (auto& source : sources) {
      source.rank = static_cast<int>(index);
      set_nonblocking(source.pipe.get(), true);
    }
    console_.output()->add(std::move(sources));
    const auto words = pointers(argv), environ = pointers(task_.environment);
    SpawnRequest request;
    request.path = found.path.c_str();
    request.argv = words.data();
    request.environ = environ.data();
    for (int fd = 0; fd < 3; ++fd) request.stdio[fd] = theirs[fd].get();
    request.mask = seat_.original_mask;
    request.ignore_children = seat_.children_ignored;
    const SpawnResult result = spawn(request);
    if (result.error != 0) {
      return feed(
          NotStarted{index, exit_code::cannot_execute,
                     "cannot execute " + in_quotes(found.path) + ": " + errno_text(result.error)});
    }
    child.pid = result.pid;
  }

  /// A pipe that is new has room for it.
  bool hand_over(int input) const {
    const std::string line = task_.secret + "\n";
    return ::write(input, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  }

  void on_child_change() override {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto child = std::ranges::find(children_, pid, &Child::pid);
      if (child == children_.end()) continue;
      child->pid = 0;
      child->input.reset();
      tell_when_read(static_cast<std::size_t>(child - children_.begin()),
                     exit_status_from_wait(status));
    }
  }

  /// Reports an end once the last output, which is part of the report, has been read.
  void tell_when_read(std::size_t index, ExitStatus status) {
    auto told = std::make_shared<bool>(false);
    const auto tell = [this, told, index, status] {
      if (std::exchange(*told, true)) return;
      const auto lines = console_.output()->error_tail(static_cast<int>(index));
      feed(Ended{index, status, lines.empty() ? "" : lines.back()});
    };
    console_.output()->catch_up([this, tell] { asio::post(io_, tell); });
    auto timer = std::make_shared<asio::steady_timer>(io_, last_words_timeout);
    timer->async_wait([timer, tell](auto) { tell(); });
  }

  /// Nobody is left to be told; our end closes all inputs.
  void on_front_lost() override { ::_exit(exit_code::internal); }

  void on_handed_on(int number) override {
    const auto& stopping = task_.spec.signals;
    if (std::ranges::count(stopping, number) == 0) return;
    feed(Stopped{number});
  }

  void feed(const Event& event) {
    events_.push_back(event);
    if (std::exchange(feeding_, true)) return;
    for (; !events_.empty(); events_.pop_front()) {
      for (const auto& effect : core_.step(events_.front(), Clock::now())) {
        std::visit([this](const auto& e) { execute(e); }, effect);
      }
    }
    feeding_ = false;
  }

  void execute(const CloseInputs&) {
    closed_ = true;
    for (Child& child : children_) child.input.reset();
  }
  void execute(const KillAll&) {
    for (const Child& child : children_) {
      if (child.pid > 0) ::kill(-child.pid, SIGKILL);
    }
  }
  void execute(const Say& effect) { console_.say(effect.sentence, Level::error); }
  void execute(const ArmTimer& effect) {
    timer_.expires_at(effect.at);
    timer_.async_wait([this](auto error) {
      if (!error) feed(TimedOut{});
    });
  }
  void execute(const Exit& effect) {
    exit_code_ = effect.code;
    console_.drain([this] { asio::post(io_, [this] { io_.stop(); }); });
  }

  const StarterTask& task_;
  const AgentSeat& seat_;
  asio::io_context io_{1};
  SignalInbox signals_;
  asio::steady_timer timer_;
  Console console_;
  StarterCore core_;
  /// What the hosts' launchers have said.
  std::shared_ptr<ToldLines::Shown> shown_ = std::make_shared<ToldLines::Shown>();
  std::optional<InputEnd> input_end_;
  std::vector<Child> children_;  ///< By start.
  bool closed_ = false;          ///< All inputs are closed: nothing more is started.
  std::deque<Event> events_;     ///< For the core.
  bool feeding_ = false;
  int exit_code_ = exit_code::internal;
};

}  // namespace

int run_starter(const StarterTask& task, const AgentSeat& seat) {
  try {
    return Starter(task, seat).run();
  } catch (const std::exception& error) {  // Out of memory, or of descriptors.
    Console(nullptr, task.voice).say(error.what(), Level::error);
    return exit_code::internal;
  }
}

}  // namespace dlaunch::launcher::remote
