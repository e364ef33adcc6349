#pragma once

#include "rendezvous/daemon/config.hpp"
#include "rendezvous/daemon/log.hpp"
#include "rendezvous/service/job_journal.hpp"
#include "rendezvous/service/service.hpp"
#include "rendezvous/state/state_place.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

namespace dlaunch::rendezvous {

constexpr std::string_view sqlite_state = "sqlite:", etcd_state = "etcd:";

/// The surroundings of a daemon that stands by.
struct Standby {
  Log& log;
  std::string notify_socket;                          ///< As DaemonTask::notify_socket.
  std::optional<std::chrono::microseconds> watchdog;  ///< As DaemonTask::watchdog.
  std::function<void()> reload;                       ///< Serves SIGHUP.
};

/// Waits until this process leads in the etcd that `config.state` names; the service manager takes
/// one that stands by for started. Null: a signal asked it to stop. Throws Error where etcd
/// refuses. SIGHUP is to be held, and is so again afterwards.
std::unique_ptr<StatePlace> await_lead(const Config& config, const Standby& standby);

/// The path of the state file that `state` names, where there is nothing in it yet; nullopt: there
/// is something, or what is kept is not in a file.
std::optional<std::string> new_state_file(const std::string& state);

/// The journal of jobs: in `led`, or, if that is null, where `config.state` says. `io` and `log`
/// outlive it. Throws Error where a state file may not be used.
std::unique_ptr<JobJournal> open_journal(const std::string& state, std::unique_ptr<StatePlace> led,
                                         boost::asio::io_context& io, Service::Log log);

}  // namespace dlaunch::rendezvous
