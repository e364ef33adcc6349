#pragma once

#include "rendezvous/control/action_door.hpp"
#include "rendezvous/control/operators.hpp"
#include "rendezvous/daemon/events.hpp"
#include "rendezvous/daemon/snapshots.hpp"
#include "rendezvous/http/http_server.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>

namespace dlaunch::rendezvous {

/// A loop that has not turned for so long counts as dead.
constexpr auto standstill_max = std::chrono::seconds(10);
/// The pause between two log lines about denied actions.
constexpr auto denials_period = std::chrono::seconds(60);

/// Serves the daemon's status on a thread of its own: readers cost the agents nothing but a
/// snapshot a second, and are answered also while the serving loop stands still. Calls are for the
/// loop's thread unless they say otherwise.
class StatusServer {
 public:
  /// `loop` is the loop that serves the agents, and outlives this. The others are called on it.
  StatusServer(boost::asio::io_context& loop, unique_fd listener, Snapshots::Look look,
               ActionDoor::Act act, HttpServer::Trouble trouble);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  /// Reports that the loop has turned, why no new job is taken (empty: jobs are taken), and how the
  /// last backup goes.
  void turned(std::string unready, BackupStatus backup);
  /// Sets the operators from now on; null: there are none. Any thread.
  void admit(std::shared_ptr<const Operators> operators);
  /// Adds an event of a job; lines that are no events are left out.
  void note(const LogLine& line);
  /// Closes the listener and every connection.
  void stop();

 private:
  Page page_for(const PageRequest& request);
  Page counted_page(const PageRequest& request);
  Page answer_to_action(const PageRequest& request);
  void note_denial(const PageRequest& request, const Page& page);
  std::string unhealthy();
  std::string unready();
  BackupStatus backup();

  boost::asio::io_context io_{1};
  const std::shared_ptr<EventRing> events_;
  Snapshots snapshots_;
  ActionDoor actions_;
  const HttpServer::Trouble trouble_;  ///< Called on the thread of the pages.
  std::mutex mutex_;
  std::shared_ptr<const Operators> operators_;
  Clock::time_point turned_ = Clock::now();
  std::string unready_;
  BackupStatus backup_;
  std::atomic<bool> news_posted_ = false;
  Histogram page_times_;
  std::uint64_t actions_denied_ = 0;
  std::optional<Clock::time_point> denials_told_;
  std::uint64_t denials_untold_ = 0;
  /// Rendered pages of jobs in this snapshot, which several readers share.
  std::shared_ptr<const DaemonStatus> rendered_from_;
  std::map<std::string, Page, std::less<>> rendered_;
  HttpServer http_;
  std::jthread thread_;
};

}  // namespace dlaunch::rendezvous
