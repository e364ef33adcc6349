#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <sys/types.h>

namespace dlaunch::launcher {

/// The directory of the cgroup (v2) in which a process with this /proc/self/cgroup and
/// /proc/self/mountinfo is; nullopt where it sees none. Pure.
std::optional<std::string> cgroup_directory(std::string_view proc_self_cgroup,
                                            std::string_view mountinfo);
/// The same of this process.
std::optional<std::string> own_cgroup_directory();

/// A cgroup (v2) below our own, for the workers of one epoch. It holds even processes that cannot
/// be found by their parents, and ends all of them at one stroke. Not thread-safe.
class OwnCgroup {
 public:
  /// Makes a cgroup in the directory `parent`, and removes those that this user's dead launchers
  /// have left there empty. Null where we may not make one, or the kernel cannot kill one (before
  /// Linux 5.14). `emptied`: see `await_end`.
  static std::unique_ptr<OwnCgroup> make(boost::asio::io_context& io, const std::string& parent,
                                         std::function<void()> emptied);
  /// Removes it, with what its processes made below it, unless some process lives on in it.
  ~OwnCgroup();
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;

  const std::string& path() const { return path_; }
  /// For SpawnRequest::cgroup.
  int descriptor() const { return directory_.get(); }
  /// SIGKILL to all that is in it.
  void kill();
  /// `emptied` is called once on the thread of `io` when no process lives in it any more.
  void await_end();
  /// Whether some process lives in it, or below it.
  bool is_populated() const;
  /// The processes directly in it.
  std::vector<pid_t> processes() const;

 private:
  OwnCgroup(boost::asio::io_context& io, std::string path, unique_fd directory, unique_fd events,
            std::function<void()> emptied);

  std::string path_;
  unique_fd directory_;  ///< Locked: says to other launchers that this one lives.
  boost::asio::posix::stream_descriptor events_;
  std::function<void()> emptied_;
  bool awaited_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< Its address is all that counts.
};

}  // namespace dlaunch::launcher
