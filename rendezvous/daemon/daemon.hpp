#pragma once

#include "rendezvous/access/keyring.hpp"
#include "rendezvous/access/socket_file.hpp"
#include "rendezvous/daemon/config.hpp"
#include "rendezvous/daemon/log.hpp"
#include "rendezvous/daemon/open_journal.hpp"
#include "rendezvous/daemon/status_server.hpp"
#include "rendezvous/daemon/systemd.hpp"
#include "rendezvous/service/service.hpp"
#include "runtime/base/secret/secret.hpp"
#include "runtime/store/server/handler_memory.hpp"

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::rendezvous {

/// The things that a daemon is given at its start.
struct DaemonTask {
  Config config;
  std::vector<ActivatedSocket> sockets;        ///< From the service manager.
  Keyring keyring;                             ///< The accepted secrets.
  std::shared_ptr<const Operators> operators;  ///< Null: nobody may act on it.
  std::string notify_socket;                   ///< NOTIFY_SOCKET; empty: none.
  /// How often the manager wants a word.
  std::optional<std::chrono::microseconds> watchdog;
  std::unique_ptr<StatePlace> led;                              ///< From await_lead; may be null.
  std::function<std::variant<Config, EarlyExit>()> read_again;  ///< For a reload.
  /// For a reload: the secrets that a configuration names. Throws Error.
  std::function<std::vector<Granted>(const Config&)> read_secrets;
  /// For a reload: the operators that a configuration names. Throws Error.
  std::function<std::shared_ptr<const Operators>(const Config&)> read_operators;
};

/// Reads the configuration, the operators and the secrets again, for a daemon that serves or stands
/// by. What is wrong is logged, and changes nothing. False: the configuration is the old one.
bool reload(DaemonTask& task, Log& log);

/// dlaunchd as a whole: listeners, the service, signals, and the talk with the service manager, on
/// one thread and one io_context; the status on a thread of its own.
class Daemon {
 public:
  /// Opens the state and the listeners. Throws Error where one cannot be opened, or where a
  /// listener would be reachable from other hosts without a secret. SIGHUP is to be held: run()
  /// lets it go.
  Daemon(DaemonTask task, Log& log);
  ~Daemon();

  /// Serves until it is told to stop; returns the exit code: 0, or exit_code::preempted when jobs
  /// were still running. Throws StateLost where the state cannot be kept any more.
  int run();

 private:
  std::unique_ptr<JobJournal> load_journal();
  void ask_for_secret();
  void open_listeners();
  std::vector<unique_fd> open(const ListenAt& at);
  std::vector<unique_fd> open_all(const ListenAt& at);
  void open_http(unique_fd listener);
  void announce();
  void await_signal();
  void on_signal(int number);
  void reload();
  void begin_drain(int signal_number);
  void hand_over(int signal_number);
  void end_drain();
  void leave();
  void await_watchdog();
  /// Tells the service manager; a failure is logged, and stops nothing.
  template <class Word>
  void tell_manager(Word word);
  template <class Part>
  void attempt(Part part);
  void note(const LogLine& line);
  void await_turn();
  std::string unready() const;
  ActionOutcome act(const Action& action);
  void look(Snapshots::Take take);
  std::size_t unfinished() const;

  DaemonTask task_;
  Log& log_;
  store::HandlerMemory signal_memory_, watchdog_memory_, turn_memory_;  ///< They outlive io_.
  boost::asio::io_context io_{1};
  std::deque<SocketFile> socket_files_;
  std::optional<std::string> made_;  ///< The state file that this start has made.
  std::unique_ptr<JobJournal> journal_;
  Service service_;
  ServiceNotifier manager_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer watchdog_timer_, drain_timer_, turn_timer_;
  Histogram loop_lag_;
  std::unique_ptr<StatusServer> status_;
  std::string listening_, http_at_ = "off";
  Clock::time_point ready_since_;
  bool draining_ = false;
  bool left_ = false;
  int exit_code_ = 0;
};

}  // namespace dlaunch::rendezvous
