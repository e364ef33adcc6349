#pragma once

#include "launcher/watch/core/questions.hpp"
#include "launcher/watch/job_entry.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

namespace dlaunch::launcher {

/// The folder in which the agents of this user's live jobs are found: $XDG_RUNTIME_DIR/dlaunch,
/// else /tmp/dlaunch-<uid>; below it <job>/<node>.sock. Accessible to its owner alone.
class StatusFolder {
 public:
  /// With `make` it makes missing folders. Throws Error{refused} with a sentence where there is no
  /// such folder, or it is not this user's own.
  explicit StatusFolder(bool make);

  const std::string& path() const { return path_; }

  struct Place {
    std::string job, node;
  };
  /// All places in the folder, whether or not somebody answers there.
  std::vector<Place> places() const;
  /// Throws Error{unreachable}: nobody listens there any more, and the place has been removed.
  unique_fd connect(const Place& place) const;
  /// Takes a place, replacing one of its name that was left behind. A process that finds it can
  /// connect.
  unique_fd listen(const Place& place) const;
  void remove(const Place& place) const noexcept;
  /// Removes the places of killed agents; if there are very many, some of them.
  void remove_dead() const noexcept;

 private:
  unique_fd listen_once(const Place& place) const;

  std::string path_;
};

/// The byte that is sent to an agent, and its answer.
enum class StatusQuestion : std::uint8_t {
  status,       ///< A JobSnapshot.
  flight,       ///< One with the ranks' last calls.
  entry,        ///< A JobEntry.
  end,          ///< A JobFarewell, when the launcher ends.
  ranks,        ///< A JobRanks.
  drain,        ///< A JobDrained; the node leaves the job.
  store_waits,  ///< A JobStoreWaits.
};

/// An agent's end: answers questions about what its workers do, and takes orders. A client that
/// does not read, or says nothing, is cut off after a while. One thread: that of `io`.
class StatusSocket {
 public:
  using Reply = std::function<void(Bytes answer)>;
  /// The launcher's answers and actions.
  struct Launcher {
    std::function<JobEntry()> entry;
    std::function<JobRanks()> ranks;
    std::function<JobDrained()> drain;
    std::function<JobStoreWaits()> store_waits;
  };
  struct Answers {
    /// Calls `reply` once, at once or later.
    std::function<void(AskSnapshot::Detail detail, Reply reply)> snapshot;
    Launcher launcher;
  };
  /// Throws what StatusFolder throws.
  StatusSocket(boost::asio::io_context& io, const std::string& job, const std::string& node,
               Answers answers);
  ~StatusSocket();
  StatusSocket(const StatusSocket&) = delete;
  StatusSocket& operator=(const StatusSocket&) = delete;

  const std::string& job() const { return place_.job; }
  /// Tells the waiting clients of the end, at once.
  void tell_end(const JobFarewell& farewell);

 private:
  struct Asker;
  void accept();
  void answer(const std::shared_ptr<Asker>& asker);

  StatusFolder folder_;
  StatusFolder::Place place_;
  Answers answers_;
  std::vector<std::weak_ptr<Asker>> waiting_for_end_;
  std::shared_ptr<const bool> alive_ = std::make_shared<bool>(true);  ///< For those who ask.
  boost::asio::local::stream_protocol::acceptor acceptor_;
};

/// The same, wherever the folder is, if there is one.
void remove_dead_places() noexcept;

/// Asks an agent. Throws Error{timeout}, Error{unreachable}, or Error{version} where it cannot be
/// understood.
JobSnapshot ask_agent(const StatusFolder& folder, const StatusFolder::Place& place,
                      AskSnapshot::Detail detail);

/// Asks a launcher for its description. Throws the same.
FoundJob ask_entry(const StatusFolder& folder, const StatusFolder::Place& place);
/// Asks a launcher for its ranks. Throws the same.
JobRanks ask_ranks(const StatusFolder& folder, const StatusFolder::Place& place);
/// Asks a launcher who waits in PyTorch's store. Throws the same.
JobStoreWaits ask_store_waits(const StatusFolder& folder, const StatusFolder::Place& place);
/// Asks a launcher to leave its job. Throws the same.
JobDrained ask_to_drain(const StatusFolder& folder, const StatusFolder::Place& place);
/// Asks to be told of the launcher's end; a JobFarewell can be read from the returned socket.
/// Throws Error{unreachable}.
unique_fd ask_for_end(const StatusFolder& folder, const StatusFolder::Place& place);

}  // namespace dlaunch::launcher
