#pragma once

#include "launcher/output/output.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/process/own_cgroup.hpp"
#include "launcher/process/program.hpp"
#include "runtime/base/os/exit_status.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>

namespace dlaunch::launcher {

/// The processes of one attempt on this node: starts them, signals them, waits for them, and for
/// what they left behind. Not thread-safe; the thread that starts them must outlive them.
class Workers {
 public:
  struct Setting {
    sigset_t mask{};               ///< For the workers.
    bool ignore_children = false;  ///< The workers begin with SIGCHLD ignored.
    rlimit descriptors{};          ///< For the workers.
    bool give_terminal = false;    ///< To a worker that inherits our streams.
    bool serves_pmi = false;       ///< Every worker inherits a socket for PMI.
    Output* output = nullptr;      ///< Takes the streams that are not inherited.
    /// Makes a cgroup for each attempt, null where there is none to be had.
    std::function<std::unique_ptr<OwnCgroup>()> make_cgroup;
  };
  explicit Workers(Setting setting);

  /// The number under which every worker inherits its control socket.
  int control_number() const { return control_number_.get(); }
  /// The same of its socket for PMI; -1: it has none.
  int pmi_number() const { return pmi_number_.get(); }

  /// Makes directories, log files and pipes, and starts all workers of the plan. On a problem
  /// those that were started run on; they are in `pids`.
  std::optional<StartProblem> start(const LaunchPlan& plan);
  /// Our ends of the control sockets, by local rank, once.
  std::vector<unique_fd> take_controls() { return std::move(controls_); }
  /// The same of the sockets for PMI.
  std::vector<unique_fd> take_pmi_sockets() { return std::move(pmi_sockets_); }
  /// By local rank; 0 for one that was not started or has ended.
  const std::vector<pid_t>& pids() const { return pids_; }

  /// The local rank of the worker to whose process group this process belongs; -1 if to none.
  int local_rank_of(pid_t pid) const;

  struct Ended {
    int local_rank = 0;
    pid_t pid = 0;
    ExitStatus status;
  };
  struct Stopped {
    int local_rank = 0;
    pid_t pid = 0;
    int signal = 0;
  };
  /// Reaps all that has ended, orphans too; tells of the workers, and which were stopped. Calls
  /// `other` for each other process.
  std::vector<Ended> reap(std::vector<Stopped>& stopped,
                          const std::function<void(pid_t, const ExitStatus&)>& other);
  /// No child of any kind was left at the last reap, and no process in the attempt's cgroup.
  bool nothing_left() const { return nothing_left_; }
  /// Children, orphans that came to us, and other processes in the attempt's cgroup.
  std::vector<pid_t> left() const;
  /// The attempt's cgroup, which lasts until `end`; null where it has none.
  OwnCgroup* cgroup() const { return cgroup_.get(); }
  /// The attempt is over: frees everything it had besides processes.
  void end() { cgroup_.reset(); }

  /// Signals every worker's process group, and orphans that came to us; SIGKILL goes to everything
  /// left.
  void signal_all(int number);
  /// A signal that is to end them. Those that are stopped are continued, as a shell's kill and
  /// systemd do it: a stopped process takes no signal but SIGKILL.
  void stop_all(int number);
  /// Signals only processes that catch it: a worker's own, or else the nearest below it that do.
  /// Returns their local ranks.
  std::vector<int> signal_catchers(int number);

 private:
  struct Pipes {
    unique_fd out, err;  ///< The workers' ends; only `out` where both streams go through it.
  };

  /// The arguments of exec for a program.
  struct Words {
    std::vector<char*> argv;
    std::vector<char*> environ;  ///< Without an end, for what a worker has of its own.
  };

  std::optional<StartProblem> start_one(const LaunchPlan& plan, const WorkerSpec& worker,
                                        Words& words, bool keeps_core);
  std::optional<StartProblem> open_filtered(const LaunchPlan& plan);
  std::optional<StartProblem> connect_stdio(const LaunchPlan& launch, const WorkerSpec& worker,
                                            Pipes& pipes);
  std::optional<StartProblem> connect(const LaunchPlan& launch, const WorkerSpec& worker,
                                      Stream stream, unique_fd& theirs);

  Setting setting_;
  unique_fd null_;
  unique_fd control_number_;        ///< Held so that nothing else gets the number.
  unique_fd pmi_number_;            ///< The same.
  std::vector<std::string> paths_;  ///< Paths of the attempt's programs.
  std::vector<pid_t> pids_;
  std::vector<unique_fd> controls_;
  std::vector<unique_fd> pmi_sockets_;
  std::vector<Output::Source> sources_;  ///< Pipes of the worker that is started next.
  std::shared_ptr<Output::SharedLog> filtered_out_, filtered_err_;  ///< While workers are started.
  std::unique_ptr<OwnCgroup> cgroup_;
  bool nothing_left_ = true;
};

}  // namespace dlaunch::launcher
