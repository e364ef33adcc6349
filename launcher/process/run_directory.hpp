#pragma once

#include "launcher/request/job_spec.hpp"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// The directory of a job's logs and error files. It bears the job's name, which a node may learn
/// only when it has met the others: so it is made then. A copy, also one in a forked process,
/// stands for the same directory.
class RunDirectory {
 public:
  RunDirectory() = default;  ///< No directory.
  /// Throws Error{refused} when what --log-dir asks for cannot be made.
  RunDirectory(const JobSpec& spec, std::span<const std::string> environment);

  /// Makes the directory, unless that was tried before. Returns why it could not be made; nullopt:
  /// it was.
  std::optional<std::string> make(std::string_view job);
  /// Empty where there is none.
  const std::string& path() const { return path_; }
  /// A place in it for the pipe by which workers tell something; empty where there is no directory.
  std::string notify_pipe() const;
  /// At the end of the job: removes it, unless the user asked for it or something in it is worth
  /// keeping; then what is empty goes.
  void finish(bool worth_keeping) const;
  /// The same if its contents are not known, because the process that made it was killed.
  void abandon() const;

 private:
  /// Seen by the processes on both sides of a fork.
  struct Made {
    std::array<char, 4096> path;
  };

  std::string prefix_;  ///< The beginning of its path.
  bool kept_ = false;   ///< The user asked for it by --log-dir.
  std::optional<std::string> problem_;
  std::string path_;
  bool tried_ = false;
  std::shared_ptr<Made> made_;
};

}  // namespace dlaunch::launcher
