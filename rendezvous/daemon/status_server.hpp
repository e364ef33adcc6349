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

/// A loop that has not turned for so long is taken for dead.
constexpr auto standstill_max = std::chrono::seconds(10);
/// Between two lines of the log on actions that were denied.
constexpr auto denials_period = std::chrono::seconds(60);

/// Serves the daemon's status on a thread of its own: readers cost the agents nothing but a
/// snapshot a second, and are answered also while the serving loop stands still. What is not said
/// to be for any thread is for the loop's.
class StatusServer {
 public:
  /// `loop` is the loop that serves the agents, and outlives this. The others are called on it.
  StatusServer(boost::asio::io_context& loop, unique_fd listener, Snapshots::Look look,
               ActionDoor::Act act, HttpServer::Trouble trouble);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  /// The loop has turned, and this is why no new job is taken (empty: jobs are), and how the last
  /// backup is.
  void turned(std::string unready, BackupStatus backup);
  /// These may act from now on; null: nobody may. Any thread.
  void admit(std::shared_ptr<const Operators> operators);
  /// Something has happened to a job; lines that are no event are left out.
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
  /// Pages of the jobs as they are in this snapshot: several readers see the same ones.
  std::shared_ptr<const DaemonStatus> rendered_from_;
  std::map<std::string, Page, std::less<>> rendered_;
  HttpServer http_;
  std::jthread thread_;
};

}  // namespace dlaunch::rendezvous
