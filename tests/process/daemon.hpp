#pragma once

#include "tests/process/job.hpp"

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::process_test {

/// A running dlaunchd, and where it is.
class Daemon {
 public:
  using Strings = std::vector<std::string>;

  explicit Daemon(Strings options = {}) : options_(std::move(options)) { start(); }
  ~Daemon() {
    if (!job_) return;
    job_->send(SIGTERM);
    CHECK(job_->wait().signal == 0);
  }
  void kill() {
    job_->send(SIGKILL);
    job_->wait();
    job_.reset();
  }
  /// The first time on a free port, later on that one.
  void start() {
    Strings line = {"--listen", endpoint_, "--http", "off"};
    line.insert(line.end(), options_.begin(), options_.end());
    job_ = std::make_unique<Job>(line, Job::Environment{}, path());
    REQUIRE(job_->saw(" fds="));
    const std::string& said = job_->err();
    const auto at = said.find("listen=") + 7;
    endpoint_ = said.substr(at, said.find_first_of(" ,", at) - at);
  }
  Job& job() { return *job_; }
  /// The line of a node that meets here.
  Strings line(const std::string& job, const Strings& options, const Strings& program) const {
    Strings all = {"--rdzv-endpoint", endpoint_, "--rdzv-id", job};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), program.begin(), program.end());
    return all;
  }
  const std::string& endpoint() const { return endpoint_; }
  static std::string path() { return DLAUNCH_BINARY_DIR "/bin/dlaunchd"; }

 private:
  const Strings options_;
  std::string endpoint_ = "127.0.0.1:0";
  std::unique_ptr<Job> job_;
};

}  // namespace dlaunch::process_test
