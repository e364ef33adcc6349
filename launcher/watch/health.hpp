#pragma once

#include "launcher/report/job_list.hpp"
#include "rendezvous/http/http_server.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <dlaunch/error.hpp>

#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <boost/asio/io_context.hpp>

namespace dlaunch::launcher {

/// The facts by which an agent's health is judged.
struct Health {
  Clock::time_point turned;  ///< When the agent's loop has last turned.
  std::string unready;       ///< Why no workers run; empty: they do.
};

/// An agent whose loop has not turned for so long is unhealthy.
constexpr auto standstill_max = std::chrono::seconds(10);
/// How often the agent's loop says that it turns.
constexpr auto turn_interval = std::chrono::seconds(1);

/// Why no workers run in this state; empty: they do. Pure.
std::string unready_text(JobState state);
/// The page at /healthz or /readyz; 404 for another one. Pure.
rendezvous::Page health_page(std::string_view target, const Health& health, Clock::time_point now);

/// Serves these pages on a thread of its own, so that it also answers while the agent's loop stands
/// still.
class HealthServer {
 public:
  /// `listener`: a bound and listening TCP socket. The calling thread has all signals blocked.
  explicit HealthServer(unique_fd listener);
  ~HealthServer();
  HealthServer(const HealthServer&) = delete;
  HealthServer& operator=(const HealthServer&) = delete;

  /// The loop has turned, and this is why no workers run. From any thread.
  void turned(std::string unready);

 private:
  boost::asio::io_context io_{1};
  std::mutex mutex_;
  Health health_;
  rendezvous::HttpServer http_;
  std::jthread thread_;
};

}  // namespace dlaunch::launcher
