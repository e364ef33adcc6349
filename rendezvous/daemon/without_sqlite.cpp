#include "rendezvous/daemon/open_journal.hpp"

namespace dlaunch::rendezvous {

bool has_sqlite() { return false; }

std::unique_ptr<JobJournal> open_journal(const std::string&, boost::asio::io_context&,
                                         Service::Log) {
  return std::make_unique<MemoryJournal>();
}

}  // namespace dlaunch::rendezvous
