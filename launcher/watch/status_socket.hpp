#pragma once

#include "launcher/watch/core/questions.hpp"
#include "launcher/watch/job_entry.hpp"
#include "launcher/watch/status_folder.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

namespace dlaunch::launcher {

/// The byte that is sent to an agent, and its answer.
enum class StatusQuestion : std::uint8_t {
  status,       ///< A JobSnapshot.
  flight,       ///< One with the ranks' last calls.
  entry,        ///< A JobEntry.
  end,          ///< A JobFarewell, when the launcher ends.
  ranks,        ///< A JobRanks.
  drain,        ///< A JobDrained; the node leaves the job.
  store_waits,  ///< A JobStoreWaits.
  stop,         ///< A JobStopAsked; the client is about to send a signal that ends the job.
  stop_asked,   ///< A JobStopAsked, which is about such clients only.
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

  const std::string& job() const { return taken_.place.job; }
  /// Tells the waiting clients of the end, at once.
  void tell_end(const JobFarewell& farewell);

 private:
  struct Asker;
  void accept();
  void answer(const std::shared_ptr<Asker>& asker);
  static bool is_recent(const std::optional<Clock::time_point>& asked);

  StatusFolder folder_;
  StatusFolder::Taken taken_;
  std::optional<Clock::time_point> stop_asked_, drain_asked_;  ///< The last that counted.
  Answers answers_;
  std::vector<std::weak_ptr<Asker>> waiting_for_end_;
  std::shared_ptr<const bool> alive_ = std::make_shared<bool>(true);  ///< For those who ask.
  boost::asio::local::stream_protocol::acceptor acceptor_;
};

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
/// Whether another client has just asked a launcher to end the job: then no signal is to be sent.
/// `question` is stop or stop_asked. False where it does not answer.
bool ask_to_stop(const StatusFolder& folder, const StatusFolder::Place& place,
                 StatusQuestion question);
/// Asks to be told of the launcher's end; a JobFarewell can be read from the returned socket.
/// Throws Error{unreachable}.
unique_fd ask_for_end(const StatusFolder& folder, const StatusFolder::Place& place);

}  // namespace dlaunch::launcher
