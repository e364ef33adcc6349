#include "rendezvous/daemon/open_journal.hpp"

#include "rendezvous/state/sqlite_journal.hpp"

#include <utility>

namespace dlaunch::rendezvous {

bool has_sqlite() { return true; }

std::unique_ptr<JobJournal> open_journal(const std::string& state, boost::asio::io_context& io,
                                         Service::Log log) {
  if (!state.starts_with(sqlite_state)) return std::make_unique<MemoryJournal>();
  return std::make_unique<SqliteJournal>(io, state.substr(sqlite_state.size()), std::move(log));
}

}  // namespace dlaunch::rendezvous
