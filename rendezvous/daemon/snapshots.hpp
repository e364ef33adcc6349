#pragma once

#include "rendezvous/daemon/status_pages.hpp"

#include <exception>
#include <functional>
#include <memory>
#include <variant>

#include <boost/asio/io_context.hpp>

namespace dlaunch::rendezvous {

/// Snapshots of the daemon that all readers share. One is taken on the serving loop, at most once a
/// second and only when somebody asks; everything else happens on the readers' thread.
class Snapshots {
 public:
  /// The status, or the failure of looking.
  using Seen = std::variant<DaemonStatus, std::exception_ptr>;
  using Take = std::function<void(Seen)>;
  /// Looks, and hands over what it saw, then or in a later turn. Called on the loop.
  using Look = std::function<void(Take)>;

  /// `loop` is the loop that serves, and outlives this.
  Snapshots(boost::asio::io_context& loop, Look look);
  ~Snapshots() { stop(); }
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  /// One that was begun within the last second. Null where the loop has not answered within 2 s of
  /// being asked; another call meanwhile does not wait as long again. Throws the failure of
  /// looking. On the one thread of the readers, not the loop's.
  std::shared_ptr<const DaemonStatus> get();
  /// Nobody waits any more. Any thread.
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Fills in the jobs, one in a turn of the loop, or some small ones, so that agents are heard in
/// between; then hands all of it over. `service` lives as long as the loop runs.
void add_jobs(boost::asio::io_context& loop, const Service& service, DaemonStatus status,
              Snapshots::Take take);

}  // namespace dlaunch::rendezvous
