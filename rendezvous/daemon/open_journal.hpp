#pragma once

#include "rendezvous/service/job_journal.hpp"
#include "rendezvous/service/service.hpp"

#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

namespace dlaunch::rendezvous {

/// What `state` of a build without SQLite begins with is refused by its configuration.
bool has_sqlite();

constexpr std::string_view sqlite_state = "sqlite:";

/// The place that keeps jobs, as `state` says, which read_config has taken. `io` and `log` outlive
/// it. Throws Error where a state file may not be used.
std::unique_ptr<JobJournal> open_journal(const std::string& state, boost::asio::io_context& io,
                                         Service::Log log);

}  // namespace dlaunch::rendezvous
