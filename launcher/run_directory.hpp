#pragma once

#include "launcher/options.hpp"

#include <span>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// Where the logs and error files of a job lie.
class RunDirectory {
 public:
  RunDirectory() = default;  ///< None.
  /// Makes it. Throws Error{refused} when what --log-dir asks for cannot be made; without
  /// --log-dir the job goes on without a directory, and `path` is empty.
  RunDirectory(const Options& options, std::span<const std::string> environment,
               std::string_view job);

  const std::string& path() const { return path_; }
  /// At the end of the job: removes it, unless the user asked for it or something in it is worth
  /// keeping.
  void finish(bool worth_keeping) const;
  /// The same where nobody knows what it holds: it goes if it is empty.
  void abandon() const;

 private:
  std::string path_;
  bool asked_for_ = false;
};

}  // namespace dlaunch::launcher
