#pragma once

#include "tests/process/job.hpp"
#include "tests/process/network/network.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::process_test {

/// What agents have without options: a node is lost after 5 s of silence.
constexpr auto default_lease = "keep_alive_interval=1s,keep_alive_max_attempt=5";

/// A job whose nodes a, b, c... are the machines 0, 1, 2... of a network. Node a hosts the
/// rendezvous. Times are scaled down: a node that is silent for `lease` is lost.
class NetworkJob {
 public:
  using Strings = std::vector<std::string>;
  static constexpr auto lease = std::chrono::milliseconds(3000);

  /// `options` are all nodes'. The workers are `victim ticking`, for so many ticks; 0: for ever.
  NetworkJob(Network& network, const std::string& nnodes, Strings options = {}, int ticks = 0);
  /// Ends all processes of the job, however far it has come.
  ~NetworkJob();

  /// Runs other workers instead: a program and its mode; a token and the ticks follow.
  void work(Strings program) { program_ = std::move(program); }
  /// Starts the next node.
  Job& add(const Strings& options = {}, const Job::Environment& environment = {});
  /// The same, where `program` execs what stands behind it.
  Job& add_under(const Strings& program, const Strings& options = {},
                 const Job::Environment& environment = {});
  Job& operator[](int node) { return *jobs_.at(static_cast<std::size_t>(node)); }
  int size() const { return static_cast<int>(jobs_.size()); }
  /// The node's launcher, its workers and all that they forked, oldest first.
  std::vector<pid_t> processes(int node) const;
  /// To all of them, again and again until no new one appears.
  void signal_all(int node, int signal_number) const;

  /// Waits until the workers of this epoch of a node have said their place.
  bool runs(int node, int epoch);
  /// Waits for some more ticks of the node's workers from now on.
  bool goes_on(int node, int ticks = 10);
  bool all_go_on();
  /// Ends the job by Ctrl-C at every node and reads all output.
  void stop();
  /// In no epoch a rank was two workers', nor the world of two sizes; no worker began while one of
  /// an earlier epoch of its node lived.
  void check_places() const;
  /// The output of all nodes, for messages.
  std::string said() const;

 private:
  Network& network_;
  Strings line_;
  int ticks_;
  Strings program_ = {victim(), "ticking"};
  std::vector<std::string> tokens_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

/// The time that a stretch took, for the test's output: nothing is asserted about it.
class Stretch {
 public:
  explicit Stretch(std::string what) : what_(std::move(what)) {}
  void ended() const;

 private:
  std::string what_;
  Clock::time_point began_ = Clock::now();
};

}  // namespace dlaunch::process_test
