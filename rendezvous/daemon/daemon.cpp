#include "rendezvous/daemon/daemon.hpp"

#include "rendezvous/daemon/process_figures.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace dlaunch::rendezvous {

namespace {

/// How long stopping may take, beyond the drain's own limit, before the manager takes us for stuck.
constexpr auto stop_reserve = std::chrono::seconds(10);
/// How often the loop reports that it turns, and how late it was.
constexpr auto turn_interval = std::chrono::milliseconds(250);
/// How long agents that are still connected may take to go when no job runs any more.
constexpr auto farewell = std::chrono::seconds(2);

/// How many descriptors agents may take. The status pages have 64 connections and the daemon some
/// files; where descriptors are few, half of them are kept for these.
constexpr std::uint64_t reserved = 96;
std::size_t agents_of(std::uint64_t descriptors) {
  return static_cast<std::size_t>(descriptors - std::min(reserved, descriptors / 2));
}

/// The rules of a configuration, completed by facts of this system.
ServiceRules rules_of(const Config& config) {
  ServiceRules rules = config.rules;
  rules.limits.memory = std::make_shared<store::MemoryBudget>();
  rules.limits.memory->max =
      config.memory_max.value_or(usable_memory(read_whole_file, machine_memory()));
  rules.connections.all = agents_of(process_figures().fds_max);
  return rules;
}

/// Connections stay, whatever secret they proved.
void reload_secrets(DaemonTask& task, Log& log) {
  try {
    const auto secrets = task.read_secrets(task.config);
    if (secrets.empty() == task.keyring.empty()) return task.keyring.accept(secrets);
    log.warning(secrets.empty() ? "there is no secret any more: until a restart, it is still "
                                  "asked for"
                                : "there is a secret now: only a restart makes it asked for");
  } catch (const Error& error) {
    log.error(std::string("the secret was not read again, the old one stays: ") + error.what());
  }
}

}  // namespace

bool reload(DaemonTask& task, Log& log) {
  auto read = task.read_again();
  std::string wrong;
  if (const auto* exit = std::get_if<EarlyExit>(&read)) {
    // The log names the program itself.
    const std::string program = dlaunchd_options().program() + ": ";
    wrong = exit->text.substr(exit->text.starts_with(program) ? program.size() : 0);
    if (wrong.ends_with('\n')) wrong.pop_back();
  } else {
    try {
      task.operators = task.read_operators(std::get<Config>(read));
    } catch (const Error& error) {
      wrong = error.what();
    }
  }
  if (!wrong.empty()) {
    log.error("the configuration was not reloaded, the old one stays: " + wrong);
    return false;
  }
  const Config& now = std::get<Config>(read);
  const auto fixed = unchangeable(task.config, now);
  // Keys that need a restart keep their old values, so that the next reload names them again.
  task.config = reloaded(task.config, now);
  log.info("the configuration was reloaded");
  log.set_least(now.log_level);
  log.set_form(now.log_format);
  if (!fixed.empty()) {
    log.warning("changed in the configuration, but in effect only after a restart: " +
                joined(fixed));
  }
  reload_secrets(task, log);
  return true;
}

Daemon::Daemon(DaemonTask task, Log& log)
    : task_(std::move(task)),
      log_(log),
      made_(new_state_file(task_.config.state)),
      journal_(load_journal()),
      service_(
          io_, rules_of(task_.config), [this](const LogLine& line) { note(line); }, journal_.get()),
      manager_(task_.notify_socket),
      signals_(io_, SIGHUP),
      watchdog_timer_(io_),
      drain_timer_(io_),
      turn_timer_(io_) {
  // A signal that was ignored at the start stays so. A reload costs nothing, whoever asks for it.
  const auto ignored = ignored_signals();
  for (const int number : {SIGTERM, SIGINT}) {
    if (std::ranges::find(ignored, number) == ignored.end()) signals_.add(number);
  }
  ask_for_secret();
  open_listeners();
}

void Daemon::ask_for_secret() {
  if (task_.keyring.empty()) return;
  service_.server().ask_for(
      {.keys = task_.keyring.keys(), .trust_loopback = task_.config.trust_loopback});
}

/// However it ends, the state of connections is recorded while the journal still exists.
Daemon::~Daemon() { service_.stop(); }

int Daemon::run() {
  announce();
  await_signal();
  await_watchdog();
  await_turn();
  hold_signal(SIGHUP, false);
  io_.run();
  hold_signal(SIGHUP, true);
  return exit_code_;
}

// ---- The start ----

/// Checking and reading gigabytes takes minutes.
std::unique_ptr<JobJournal> Daemon::load_journal() {
  const LongStart patience(task_.notify_socket, "reading the state", task_.watchdog);
  return open_journal(task_.config.state, std::move(task_.led), io_,
                      [this](const LogLine& line) { log_.write(line); });
}

/// Another process that has the address may have left it by the next start, so the configuration is
/// not to blame.
std::vector<unique_fd> Daemon::open(const ListenAt& at) {
  try {
    return open_all(at);
  } catch (const Error& error) {
    if (error.errc() != Errc::refused) throw;
    throw Error(Errc::unreachable, error.what());
  }
}

/// All the addresses of a name: "localhost" is 127.0.0.1 and ::1.
std::vector<unique_fd> Daemon::open_all(const ListenAt& at) {
  std::vector<unique_fd> fds;
  if (!at.path.empty()) {
    const Config& config = task_.config;
    fds.push_back(
        socket_files_.emplace_back(at.path, config.socket_mode, config.socket_group).take());
    return fds;
  }
  for (const Address& address : resolve(at.host, at.port)) {
    // If the kernel chooses the port, one address is enough.
    if (at.port == 0 && !fds.empty()) break;
    fds.push_back(listen_tcp(address));
  }
  return fds;
}

/// Sockets of the service manager take the place of configured ones, each kind for itself.
void Daemon::open_listeners() {
  std::vector<unique_fd> rendezvous, http;
  for (auto& socket : task_.sockets) {
    auto& list = socket.purpose == ActivatedSocket::Purpose::http ? http : rendezvous;
    list.push_back(std::move(socket.fd));
  }
  task_.sockets.clear();
  if (rendezvous.empty()) {
    for (const auto& at : task_.config.listen) {
      for (auto& fd : open(at)) rendezvous.push_back(std::move(fd));
    }
  }
  if (http.empty() && task_.config.http) http = open(*task_.config.http);
  for (auto& fd : rendezvous) {
    const Address at = local_address(fd.get());
    if (!at.is_loopback() && task_.keyring.empty()) {
      throw Error(Errc::refused, "the socket at " + at.to_string() +
                                     " can be reached from other hosts, and there is no secret: "
                                     "listen on 127.0.0.1 or [::1]");
    }
    listening_ += (listening_.empty() ? "" : ",") + at.to_string();
    std::optional<SocketAccess> access;
    if (at.storage.ss_family == AF_UNIX) access = access_of(fd.get());
    service_.listen(std::move(fd), {.native = true, .c10d = false}, access);
  }
  for (auto& fd : http) open_http(std::move(fd));
}

void Daemon::open_http(unique_fd listener) {
  const Address at = local_address(listener.get());
  if (!at.is_loopback()) {
    throw Error(Errc::refused, "the socket at " + at.to_string() +
                                   " can be reached from other hosts; the status is served on "
                                   "loopback only in this build");
  }
  if (status_) return;  // "localhost" is two addresses; one of them is enough.
  http_at_ = at.to_string();
  status_ = std::make_unique<StatusServer>(
      io_, std::move(listener), [this](Snapshots::Take take) { look(std::move(take)); },
      [this](const Action& action) { return act(action); },
      [this](const std::string& sentence) { log_.warning(sentence); });
  status_->admit(task_.operators);
}

void Daemon::note(const LogLine& line) {
  log_.write(line);
  try {
    if (status_) status_->note(line);
  } catch (const std::bad_alloc&) {  // Its readers miss one.
  }
}

/// One line whose form is fixed: scripts and tests read it.
void Daemon::announce() {
  ready_since_ = Clock::now();
  log_.set_least(LogLine::Level::info);
  log_.info(fmt::format("ready pid={} listen={} http={} state={} secret={} fds={}", ::getpid(),
                        listening_, http_at_, task_.config.state,
                        task_.keyring.empty() ? "none" : "yes", process_figures().fds_max));
  if (const auto fds = process_figures().fds_max; fds < 2 * reserved) {
    log_.warning(
        fmt::format("there is room for {} connections only, as no more than {} files may "
                    "be open: raise LimitNOFILE= of the unit, or ulimit -n",
                    agents_of(fds), fds));
  }
  if (const auto& why = service_.drained_before()) {
    log_.warning(*why + ", before this start: no new job is taken until 'dlaunch ctl resume'");
  }
  log_.set_least(task_.config.log_level);
  // If one was lost, this is the only trace of it.
  if (made_) {
    log_.info("the state file " + name_in_quotes(*made_) +
              " was made: there is nothing in it from before this start");
  }
  tell_manager([&] { manager_.ready("listening on " + listening_); });
}

// ---- Signals ----

void Daemon::await_signal() {
  signals_.async_wait(store::WaitHandler(
      signal_memory_, [this](const boost::system::error_code& error, int number) {
        if (error) return;
        attempt([&] { on_signal(number); });
        if (!left_) await_signal();
      }));
}

void Daemon::on_signal(int number) {
  if (number == SIGHUP) return reload();
  if (!draining_) return begin_drain(number);
  log_.warning(fmt::format("a second signal (SIG{}): leaving at once", ::sigabbrev_np(number)));
  end_drain();
}

void Daemon::reload() {
  tell_manager([&] { manager_.reloading(); });
  if (rendezvous::reload(task_, log_)) {
    if (status_) status_->admit(task_.operators);
    service_.change(task_.config.rules);
    ask_for_secret();
    if (!task_.keyring.empty()) {
      log_.info(task_.keyring.report(
          [this](std::uint64_t key) { return service_.server().connections_by(key); }));
    }
  }
  tell_manager([&] { manager_.ready("listening on " + listening_); });
}

// ---- The end ----

void Daemon::begin_drain(int signal_number) {
  draining_ = true;
  if (task_.config.state.starts_with(etcd_state)) return hand_over(signal_number);
  const auto limit = task_.config.drain_timeout;
  const std::string sentence =
      fmt::format("SIG{}: draining; {} may end within {}", ::sigabbrev_np(signal_number),
                  plural(static_cast<long>(unfinished()), "job"), duration_text(limit));
  log_.info(sentence);
  tell_manager([&] { manager_.stopping(sentence, limit + stop_reserve); });
  drain_timer_.expires_after(limit);
  drain_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    attempt([&] { end_drain(); });
    leave();
  });
  service_.drain([this] { leave(); }, farewell);
  if (status_) status_->turned(unready(), journal_->backup());
}

/// Jobs go on with the next one that leads, which a drain would keep from them, and them from it.
void Daemon::hand_over(int signal_number) {
  const auto running = static_cast<long>(unfinished());
  const std::string sentence = fmt::format(
      "SIG{}: giving up the lead; {} {} on with the dlaunchd that leads next",
      ::sigabbrev_np(signal_number), plural(running, "job"), running == 1 ? "goes" : "go");
  log_.info(sentence);
  tell_manager([&] { manager_.stopping(sentence, stop_reserve); });
  if (running > 0) exit_code_ = exit_code::preempted;
  leave();
}

/// Jobs that still run learn of the end by their broken connections, as after a crash.
void Daemon::end_drain() {
  std::vector<std::string> names;
  for (const auto& job : service_.jobs()) {
    if (job.status.state != JobStatus::State::finished) names.push_back(in_quotes(job.job));
  }
  if (!names.empty()) {
    exit_code_ = exit_code::preempted;
    log_.warning(plural(static_cast<long>(names.size()), "job") +
                 " had not ended: " + joined(names));
  }
  leave();
}

/// Nothing is left to wait for, so io_.run() returns.
void Daemon::leave() {
  if (std::exchange(left_, true)) return;
  attempt([&] { log_.info("stopped"); });
  service_.stop();
  if (status_) status_->stop();
  signals_.cancel();
  watchdog_timer_.cancel();
  drain_timer_.cancel();
  turn_timer_.cancel();
}

// ---- The service manager ----

template <class Word>
void Daemon::tell_manager(Word word) {
  try {
    word();
  } catch (const Error& error) {
    log_.warning(error.what());
  }
}

/// A failure here, for want of memory say, ends nothing: the jobs have no part in it.
template <class Part>
void Daemon::attempt(Part part) {
  try {
    part();
  } catch (const std::exception& failure) {
    try {
      log_.error(std::string("something failed, and dlaunchd goes on: ") + failure.what());
    } catch (const std::exception&) {  // There is no memory for the log line, either.
    }
  }
}

/// From the loop that serves: when it no longer turns, the manager hears nothing.
void Daemon::await_watchdog() {
  if (!task_.watchdog || !manager_.active()) return;
  attempt([&] { tell_manager([&] { manager_.alive(); }); });
  watchdog_timer_.expires_after(*task_.watchdog);
  watchdog_timer_.async_wait(
      store::WaitHandler(watchdog_memory_, [this](const boost::system::error_code& error) {
        if (!error) await_watchdog();
      }));
}

// ---- What it looks like ----

std::string Daemon::unready() const {
  return service_.draining() ? "draining: no new job is taken" : journal_->trouble();
}

/// The pages learn the new state before the operator hears that the action is done.
ActionOutcome Daemon::act(const Action& action) {
  auto outcome = service_.act(action);
  status_->turned(unready(), journal_->backup());
  return outcome;
}

/// The delay of this timer is that of everything the loop does.
void Daemon::await_turn() {
  if (!status_ || left_) return;
  attempt([&] { status_->turned(unready(), journal_->backup()); });
  turn_timer_.expires_after(turn_interval);
  turn_timer_.async_wait(
      store::WaitHandler(turn_memory_, [this](const boost::system::error_code& error) {
        if (error) return;
        loop_lag_.add(Clock::now() - turn_timer_.expiry());
        await_turn();
      }));
}

void Daemon::look(Snapshots::Take take) {
  const auto now = Clock::now();
  const ServiceRules& rules = task_.config.rules;
  add_jobs(io_, service_,
           {.now = now,
            .up = now - ready_since_,
            .jobs = {},
            .totals = service_.totals(),
            .counters = service_.counters(),
            .message_times = service_.message_times(),
            .loop_lag = loop_lag_,
            .state = journal_->figures(),
            .log_lines_lost = log_.lost(),
            .draining = service_.draining(),
            .connections_max = agents_of(process_figures().fds_max),
            .jobs_max = rules.jobs_max,
            .keys_max = rules.limits.keys,
            .bytes_max = rules.limits.total_bytes},
           std::move(take));
}

std::size_t Daemon::unfinished() const {
  const auto jobs = service_.jobs();
  return static_cast<std::size_t>(std::ranges::count_if(
      jobs, [](const auto& job) { return job.status.state != JobStatus::State::finished; }));
}

}  // namespace dlaunch::rendezvous
