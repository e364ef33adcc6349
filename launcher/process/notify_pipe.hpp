#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace dlaunch::launcher {

/// "progress": the job goes on.
struct ProgressMade {
  bool operator==(const ProgressMade&) const = default;
};
/// "extend 90": the job is not to end before so long from now.
struct TimeWanted {
  std::chrono::milliseconds time{};
  bool operator==(const TimeWanted&) const = default;
};
/// A worker's message to its agent, one line.
using WorkerNotice = std::variant<ProgressMade, TimeWanted>;
/// nullopt for any other line. Pure.
std::optional<WorkerNotice> read_notice(std::string_view line);

/// Splits the bytes of a pipe into lines; a line too long for a notice is cut. Pure.
class NoticeLines {
 public:
  /// Calls `take` with each line that is whole now.
  void feed(std::string_view bytes, const std::function<void(std::string_view line)>& take);

 private:
  std::string begun_;
};

/// A named pipe into which any process of a node's workers may write notices: a script can `echo`
/// what the library offers as a call. Notices are handled on the thread of `io`, where this object
/// also ends, and the pipe with it.
class NotifyPipe {
 public:
  struct Heard {
    std::function<void()> progress;
    std::function<void(std::chrono::milliseconds time)> time_wanted;
    std::function<void(std::string_view line)> other;  ///< Takes lines that are no notices.
  };
  /// Makes the pipe. Throws Error{refused} where the file system has none.
  NotifyPipe(boost::asio::io_context& io, std::string path, Heard heard);
  ~NotifyPipe();
  NotifyPipe(const NotifyPipe&) = delete;
  NotifyPipe& operator=(const NotifyPipe&) = delete;

  const std::string& path() const { return path_; }

 private:
  void read();
  void take(std::string_view line) const;

  const std::string path_;
  const Heard heard_;
  boost::asio::posix::stream_descriptor pipe_;
  std::array<char, 4096> block_{};
  NoticeLines lines_;
};

}  // namespace dlaunch::launcher
