#include "rendezvous/daemon/open_journal.hpp"

#include "rendezvous/daemon/state_commands.hpp"
#include "rendezvous/daemon/systemd.hpp"
#include "rendezvous/state/etcd/etcd_place.hpp"
#include "rendezvous/state/state_journal.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <unistd.h>

namespace dlaunch::rendezvous {
namespace {

/// "head-1 at 10.0.0.1:29400", the name by which standbys call the leader.
std::string identity_of(const Config& config) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + " at " +
         joined(config.listen, [](const ListenAt& at) { return to_string(at); });
}

/// Serves signals and the service manager while another thread waits for the lead.
class Waiting {
 public:
  explicit Waiting(const Standby& standby)
      : standby_(standby),
        manager_(standby.notify_socket),
        signals_(io_, SIGHUP),
        watchdog_timer_(io_) {
    const auto ignored = ignored_signals();
    for (const int number : {SIGTERM, SIGINT}) {
      if (std::ranges::find(ignored, number) == ignored.end()) signals_.add(number);
    }
  }

  std::unique_ptr<StatePlace> run(const Config& config) {
    const auto servers = etcd::read_servers(config.state.substr(etcd_state.size()));
    const auto told = [this](const std::string& sentence) {
      boost::asio::post(io_, [this, sentence] { say(sentence); });
    };
    std::jthread election([&](const std::stop_token& stop) {
      try {
        place_ = etcd::EtcdPlace::lead(std::get<etcd::Servers>(servers), identity_of(config), stop,
                                       told);
      } catch (...) {
        failure_ = std::current_exception();
      }
      boost::asio::post(io_, [this] { io_.stop(); });
    });
    await_signal(election);
    await_watchdog();
    io_.run();
    election.join();
    if (failure_) std::rethrow_exception(failure_);
    if (stopped_) return nullptr;
    if (said_) standby_.log.info("leads now");
    return std::move(place_);
  }

 private:
  void say(const std::string& sentence) {
    standby_.log.info(sentence);
    said_ = true;
    tell([&] { manager_.ready(sentence); });
  }
  void await_signal(std::jthread& election) {
    signals_.async_wait([this, &election](const boost::system::error_code& error, int number) {
      if (error) return;
      if (number == SIGHUP) return await_signal(election);
      stopped_ = true;
      election.request_stop();
    });
  }
  void await_watchdog() {
    if (!standby_.watchdog || !manager_.active()) return;
    tell([&] { manager_.alive(); });
    watchdog_timer_.expires_after(*standby_.watchdog);
    watchdog_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) await_watchdog();
    });
  }
  template <class Word>
  void tell(Word word) {
    try {
      word();
    } catch (const Error& error) {
      standby_.log.warning(error.what());
    }
  }

  const Standby& standby_;
  boost::asio::io_context io_{1};
  ServiceNotifier manager_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer watchdog_timer_;
  bool said_ = false, stopped_ = false;
  std::unique_ptr<StatePlace> place_;  ///< The election's until it has ended, like failure_.
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<StatePlace> await_lead(const Config& config, const Standby& standby) {
  return Waiting(standby).run(config);
}

std::unique_ptr<JobJournal> open_journal(const std::string& state, std::unique_ptr<StatePlace> led,
                                         boost::asio::io_context& io, Service::Log log) {
  if (!led && state.starts_with(sqlite_state)) {
    led = open_state_file(state.substr(sqlite_state.size()));
  }
  if (!led) return std::make_unique<MemoryJournal>();
  return std::make_unique<StateJournal>(io, std::move(led), std::move(log));
}

}  // namespace dlaunch::rendezvous
