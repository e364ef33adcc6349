#include "rendezvous/daemon/open_journal.hpp"

#include "rendezvous/daemon/state_commands.hpp"
#include "rendezvous/daemon/systemd.hpp"
#include "rendezvous/state/etcd/etcd_place.hpp"
#include "rendezvous/state/state_file.hpp"
#include "rendezvous/state/state_journal.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::rendezvous {
namespace {

/// How long etcd may take for a request that is under way when a signal comes.
constexpr auto stop_time_max = std::chrono::seconds(10);

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
    const auto told = [this](etcd::EtcdPlace::Why why, const std::string& sentence) {
      boost::asio::post(io_, [this, why, sentence] { say(why, sentence); });
    };
    // Taken now: a reload changes the configuration while the other thread runs.
    const auto identity = identity_of(config);
    std::jthread election([&](const std::stop_token& stop) {
      try {
        place_ = etcd::EtcdPlace::lead(std::get<etcd::Servers>(servers), identity, stop, told);
      } catch (...) {
        failure_ = std::current_exception();
      }
      boost::asio::post(io_, [this] { io_.stop(); });
    });
    await_signal(election);
    await_watchdog();
    hold_signal(SIGHUP, false);
    io_.run();
    hold_signal(SIGHUP, true);
    election.join();
    // A signal may have come just then, and was not served yet.
    io_.restart();
    io_.poll();
    if (failure_) std::rethrow_exception(failure_);
    if (stopped_) return nullptr;
    if (!standing_.empty()) standby_.log.info("leads now");
    return std::move(place_);
  }

 private:
  void say(etcd::EtcdPlace::Why why, const std::string& sentence) {
    const bool wrong = why == etcd::EtcdPlace::Why::out_of_reach;
    standby_.log.write({.level = wrong ? LogLine::Level::warning : LogLine::Level::info,
                        .job = "",
                        .sentence = sentence});
    standing_ = sentence;
    tell([&] { manager_.ready(sentence); });
  }
  /// It leads later with what is in effect then, so it has to be as up to date as the leader.
  void reload() {
    // The manager has not been told of a start yet while nothing was said.
    if (!standing_.empty()) tell([&] { manager_.reloading(); });
    standby_.reload();
    if (!standing_.empty()) tell([&] { manager_.ready(standing_); });
  }
  void stop(int signal_number, std::jthread& election) {
    stopped_ = true;
    const std::string sentence =
        fmt::format("SIG{}: stopped before it led", ::sigabbrev_np(signal_number));
    standby_.log.info(sentence);
    tell([&] { manager_.stopping(sentence, stop_time_max); });
    election.request_stop();
  }
  void await_signal(std::jthread& election) {
    signals_.async_wait([this, &election](const boost::system::error_code& error, int number) {
      if (error) return;
      if (number != SIGHUP) return stop(number, election);
      reload();
      await_signal(election);
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
  std::string standing_;  ///< What was said last of why it does not lead; empty: nothing.
  bool stopped_ = false;
  std::unique_ptr<StatePlace> place_;  ///< The election's until it has ended, like failure_.
  std::exception_ptr failure_;
};

/// The file is made for nobody else to read; another program may have changed that.
void warn_of_readers(const std::string& path, const Service::Log& log) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0 || (file.st_mode & (S_IRWXG | S_IRWXO)) == 0) return;
  log({.level = LogLine::Level::warning,
       .job = "",
       .sentence = fmt::format("others than its owner have access to the state file {} (mode "
                               "{:04o}), which holds what jobs keep: chmod 600",
                               name_in_quotes(path), file.st_mode & 07777)});
}

}  // namespace

std::unique_ptr<StatePlace> await_lead(const Config& config, const Standby& standby) {
  return Waiting(standby).run(config);
}

std::optional<std::string> new_state_file(const std::string& state) {
  if (!state.starts_with(sqlite_state)) return std::nullopt;
  std::string path = state.substr(sqlite_state.size());
  struct stat file {};
  if (::stat(path.c_str(), &file) == 0 &&
      !is_empty_state(static_cast<std::uintmax_t>(file.st_size))) {
    return std::nullopt;
  }
  return path;
}

std::unique_ptr<JobJournal> open_journal(const std::string& state, std::unique_ptr<StatePlace> led,
                                         boost::asio::io_context& io, Service::Log log) {
  if (!led && state.starts_with(sqlite_state)) {
    const std::string path = state.substr(sqlite_state.size());
    led = open_state_file(path);
    warn_of_readers(path, log);
  }
  if (!led) return std::make_unique<MemoryJournal>();
  return std::make_unique<StateJournal>(io, std::move(led), std::move(log));
}

}  // namespace dlaunch::rendezvous
