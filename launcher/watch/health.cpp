#include "launcher/watch/health.hpp"

#include <utility>

namespace dlaunch::launcher {

using rendezvous::sentence_page;

std::string unready_text(JobState state) {
  switch (state) {
    case JobState::waiting:
      return "waiting: this node has no place in the job yet";
    case JobState::running:
      return "";
    case JobState::restarting:
      return "restarting: the workers have ended, and will be started again";
    case JobState::stopping:
      return "stopping: the workers are being ended";
    case JobState::ended:
      return "ended: the workers of this node have ended, and the rendezvous has yet to say what "
             "follows";
  }
  return "";
}

rendezvous::Page health_page(std::string_view target, const Health& health, Clock::time_point now) {
  const std::string_view path = target.substr(0, target.find('?'));
  if (path != "/healthz" && path != "/readyz") {
    return sentence_page(404, "nothing is here; there are /healthz and /readyz");
  }
  const auto still = std::chrono::duration_cast<std::chrono::seconds>(now - health.turned);
  if (still >= standstill_max) {
    return sentence_page(503,
                         "the agent has stood still for " + std::to_string(still.count()) + " s");
  }
  if (path == "/healthz") return sentence_page(200, "ok");
  return health.unready.empty() ? sentence_page(200, "ready") : sentence_page(503, health.unready);
}

HealthServer::HealthServer(unique_fd listener)
    : health_{Clock::now(), "the agent starts"},
      http_(
          io_, std::move(listener),
          [this](const rendezvous::PageRequest& request) {
            const std::lock_guard lock(mutex_);
            return health_page(request.target, health_, Clock::now());
          },
          // The pages cannot fail, and a probe that gets no answer says so itself.
          [](const std::string&) {}),
      thread_([this] { io_.run(); }) {}

HealthServer::~HealthServer() { io_.stop(); }

void HealthServer::turned(std::string unready) {
  const std::lock_guard lock(mutex_);
  health_ = {Clock::now(), std::move(unready)};
}

}  // namespace dlaunch::launcher
