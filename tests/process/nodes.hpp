#pragma once

#include "tests/process/job.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::process_test {

using Strings = std::vector<std::string>;

/// The agents of one job, started by the same line.
class Nodes {
 public:
  explicit Nodes(std::string nnodes, Strings program, Strings options = {},
                 Job::Environment environment = {})
      : endpoint_("127.0.0.1:" + std::to_string(free_port())),
        environment_(std::move(environment)) {
    line_ = {"--nnodes", std::move(nnodes), "--rdzv-endpoint", endpoint_};
    line_.insert(line_.end(), options.begin(), options.end());
    program_ = std::move(program);
  }
  /// Starts one more; `options` are its own.
  Job& add(const Strings& options = {}) { return start(dlaunch_path(), {}, options); }
  /// Starts one more by another program, which gets its own arguments and then those of dlaunch.
  Job& add_under(const Strings& command) {
    Strings before(command.begin() + 1, command.end());
    before.push_back(dlaunch_path());
    return start(command.front(), std::move(before), {});
  }
  Job& operator[](std::size_t node) { return *jobs_.at(node); }
  const std::string& endpoint() const { return endpoint_; }

 private:
  Job& start(const std::string& program, Strings line, const Strings& options) {
    for (const Strings* part : {&std::as_const(line_), &options, &std::as_const(program_)}) {
      line.insert(line.end(), part->begin(), part->end());
    }
    jobs_.push_back(std::make_unique<Job>(std::move(line), environment_, program));
    return *jobs_.back();
  }

  std::string endpoint_;
  Job::Environment environment_;
  Strings line_;
  Strings program_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace dlaunch::process_test
