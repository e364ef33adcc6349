#include "rendezvous/daemon/config.hpp"

#include "rendezvous/daemon/open_journal.hpp"
#include "rendezvous/daemon/state_commands.hpp"
#include "rendezvous/state/etcd/servers.hpp"
#include "runtime/base/os/peer_user.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/take.hpp"

#include <array>
#include <limits>
#include <utility>

namespace dlaunch::rendezvous {

namespace {

constexpr std::size_t listeners_max = 16;
constexpr long jobs_limit = 100'000;
constexpr long nodes_limit = 100'000;
constexpr long keys_limit = 1L << 30;
constexpr long connections_limit = 1L << 20;
constexpr long bytes_least = 1L << 20;
constexpr long bytes_limit = 1L << 40;

Read<ListenAt> read_address(std::string_view text) {
  const auto read = read_endpoint(text);
  if (const auto* wrong = std::get_if<Complaint>(&read)) {
    return Complaint{in_quotes(text) + ": " + wrong->sentence};
  }
  const auto& [host, port] = std::get<EndpointAsked>(read);
  if (!port) {
    return Complaint{in_quotes(text) + " is not HOST:PORT, as in 127.0.0.1:" DLAUNCH_MEETING_PORT
                                       " or [::1]:" DLAUNCH_MEETING_PORT};
  }
  return ListenAt{.host = host, .port = *port};
}

Read<ListenAt> read_socket(std::string_view text) {
  constexpr std::size_t path_bytes_max = 107;
  const auto path = text.substr(unix_prefix.size());
  if (!path.starts_with('/')) {
    return Complaint{in_quotes(text) + ": a whole path is needed, as in " +
                     "unix:/run/dlaunchd/dlaunchd.sock"};
  }
  if (path.size() > path_bytes_max) {
    return Complaint{in_quotes(text) + ": the path of a socket has at most " +
                     std::to_string(path_bytes_max) + " bytes"};
  }
  ListenAt at;
  at.path = path;
  return at;
}

Taken socket_mode(Config& config, std::string_view value) {
  constexpr int octal = 8;
  const bool good = value.size() == 4 && value.front() == '0' &&
                    value.find_first_not_of("01234567") == std::string_view::npos;
  if (!good) return Complaint{in_quotes(value) + " is no mode of a file, as in 0660"};
  config.socket_mode = static_cast<mode_t>(std::stoul(std::string(value), nullptr, octal));
  return std::nullopt;
}

Taken listen(Config& config, std::string_view value) {
  config.listen.clear();
  for (const auto part : split(value, ',')) {
    auto at = part.starts_with(unix_prefix) ? read_socket(part) : read_address(part);
    if (const auto* complaint = std::get_if<Complaint>(&at)) return *complaint;
    config.listen.push_back(std::get<ListenAt>(std::move(at)));
  }
  if (config.listen.empty()) return Complaint{"at least one HOST:PORT is needed"};
  if (config.listen.size() > listeners_max) {
    return Complaint{"at most " + std::to_string(listeners_max) + " addresses are allowed"};
  }
  return std::nullopt;
}

Taken http(Config& config, std::string_view value) {
  config.http.reset();
  if (value == "off") return std::nullopt;
  auto at = read_address(value);
  if (const auto* complaint = std::get_if<Complaint>(&at)) return *complaint;
  if (!is_loopback_name(std::get<ListenAt>(at).host)) {
    return Complaint{
        "the status is served on loopback only in this build; use 127.0.0.1:PORT, and "
        "a proxy or 'ssh -L' to read it from elsewhere"};
  }
  config.http = std::get<ListenAt>(std::move(at));
  return std::nullopt;
}

Taken state(Config& config, std::string_view value) {
  config.state = value;
  if (value == "memory") return std::nullopt;
  if (value.starts_with(etcd_state)) {
    const auto read = etcd::read_servers(value.substr(etcd_state.size()));
    if (const auto* wrong = std::get_if<Complaint>(&read)) return *wrong;
    return std::nullopt;
  }
  const bool sqlite = value.starts_with(sqlite_state);
  if (sqlite && !has_sqlite()) {
    return Complaint{"this build has no SQLite; use memory or etcd:URL,..."};
  }
  if (sqlite && value.size() > sqlite_state.size()) return std::nullopt;
  if (sqlite) return Complaint{"a file is needed, as in sqlite:/var/lib/dlaunch/state.db"};
  return Complaint{in_quotes(value) + " is none of memory, sqlite:PATH, etcd:URL,..."};
}

/// "4GiB", "512MiB", "64KiB" or a number of bytes.
Read<std::size_t> read_size(std::string_view value) {
  constexpr std::array<std::pair<std::string_view, int>, 3> units = {
      {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}}};
  int shift = 0;
  for (const auto& [unit, bits] : units) {
    if (!value.ends_with(unit)) continue;
    value.remove_suffix(unit.size());
    shift = bits;
  }
  const auto number = read_integer(value, 0, std::numeric_limits<long>::max());
  const auto* complaint = std::get_if<Complaint>(&number);
  const bool huge = !value.empty() && value.find_first_not_of("0123456789") == value.npos;
  if (complaint != nullptr && !huge) {
    return Complaint{complaint->sentence + " (bytes, or with KiB, MiB or GiB behind)"};
  }
  if (complaint != nullptr || std::get<long>(number) > bytes_limit >> shift) {
    return Complaint{"at most " + std::to_string(bytes_limit >> 30) + "GiB is allowed"};
  }
  const long bytes = std::get<long>(number) << shift;
  if (bytes < bytes_least) return Complaint{"at least 1MiB is needed"};
  return static_cast<std::size_t>(bytes);
}

Taken bytes_max(Config& config, std::string_view value) {
  return take::store(read_size(value), config.rules.limits.total_bytes);
}

Taken memory_max(Config& config, std::string_view value) {
  config.memory_max.reset();
  if (value == "auto") return std::nullopt;
  return take::store(read_size(value), config.memory_max.emplace());
}

constexpr auto levels = std::to_array<take::Named<LogLine::Level>>({
    {"debug", LogLine::Level::debug},
    {"info", LogLine::Level::info},
    {"warning", LogLine::Level::warning},
    {"error", LogLine::Level::error},
});

constexpr auto log_forms = std::to_array<take::Named<Log::Form>>({
    {"text", Log::Form::text},
    {"json", Log::Form::json},
});

/// Whether listening at `one` takes `other`, at the same port, besides.
bool takes_host(std::string_view one, std::string_view other) {
  if (one == "localhost") return other == "127.0.0.1" || other == "::1";
  const bool v6 = other.find(':') != std::string_view::npos;
  if (one == "::") return v6 || other == "localhost";
  const bool v4 = other.find_first_not_of("0123456789.") == std::string_view::npos;
  return one == "0.0.0.0" && (v4 || other == "localhost");
}

/// With port 0 the kernel chooses another one each time.
bool is_one_address(const ListenAt& one, const ListenAt& other) {
  if (one == other) return one.port != 0 || !one.path.empty();
  return one.path.empty() && other.path.empty() && one.port == other.port && one.port != 0 &&
         (takes_host(one.host, other.host) || takes_host(other.host, one.host));
}

constexpr std::string_view keys = "Options that are keys of the configuration file, too";
constexpr std::string_view others = "Others";
constexpr OptionTraits live{.file = true, .reload = true};
constexpr OptionTraits at_start{.file = true};
constexpr OptionTraits addresses{.file = true, .adds_up = true};

// clang-format off
constexpr auto rows = std::to_array<OptionRow<Config>>({
  {{"listen", 0, "HOST:PORT|unix:PATH", "127.0.0.1:" DLAUNCH_MEETING_PORT, keys, addresses,
    "Address at which agents come in; on the command line it may be repeated. Sockets from the "
    "service manager take its place. Beyond loopback a secret is needed; by a unix socket those "
    "who may open its file come in without one."}, listen},
  {{"socket-mode", 0, "MODE", "0660", keys, at_start,
    "The mode of unix sockets that are listened on."}, socket_mode},
  {{"socket-group", 0, "GROUP", "", keys, at_start,
    "Their group, by name. Empty: the daemon's."}, take::any_text<&Config::socket_group>},
  {{"http", 0, "HOST:PORT|off", "127.0.0.1:29401", keys, at_start,
    "Address at which the status is served: loopback only."}, http},
  {{"http-token-file", 0, "FILE", "", keys, live,
    "Those who may act on jobs over HTTP: lines of NAME TOKEN. Empty: dlaunchd.operators among "
    "the service manager's credentials, where it is there; else nobody may."},
   take::any_text<&Config::http_token_file>},
  {{"secret-file", 0, "FILE", "", keys, live,
    "The secret that agents must know; a second line may have the old one, which is still "
    "accepted. Empty: dlaunchd.secret among the service manager's credentials, where it is there."},
   take::any_text<&Config::secret_file>},
  {{"tool-secret-file", 0, "FILE", "", keys, live,
    "Another secret, for tools: its holders may read and change keys of jobs, and join none."},
   take::any_text<&Config::tool_secret_file>},
  {{"read-only-secret-file", 0, "FILE", "", keys, live,
    "A third secret: its holders may read keys of jobs, and no more."},
   take::any_text<&Config::read_only_secret_file>},
  {{"trust-loopback", 0, "", "0", keys, live,
    "Let plain connections of this host's loopback in without the secret, where there is one. Not "
    "where users or forwarded ports of this host are not to be trusted."},
   take::flag<&Config::trust_loopback>},
  {{"state", 0, "memory|sqlite:FILE|etcd:URL,...", "memory", keys, at_start,
    "The place that keeps jobs and keys over a restart: the daemon's memory, a file on a local "
    "disk, or etcd, where one of several dlaunchd leads. A URL is http://HOST:PORT, with /NAME "
    "behind where several clusters share an etcd. Where the service manager has a state directory, "
    "its state.db is the default."}, state},
  {{"jobs-max", 0, "N", "1024", keys, live, "Unfinished jobs at once."},
   [](Config& c, std::string_view v) {
     return take::store(read_integer(v, 1, jobs_limit), c.rules.jobs_max); }},
  {{"nodes-per-job-max", 0, "N", "20000", keys, live, "Nodes in one job."},
   [](Config& c, std::string_view v) {
     return take::store(read_integer(v, 1, nodes_limit), c.rules.nodes_per_job_max); }},
  {{"keys-max", 0, "N", "1048576", keys, at_start, "Keys in one job's store."},
   [](Config& c, std::string_view v) {
     return take::store(read_integer(v, 1, keys_limit), c.rules.limits.keys); }},
  {{"bytes-max", 0, "SIZE", "4GiB", keys, at_start,
    "Keys, values and waits in one job's store, in bytes."}, bytes_max},
  {{"memory-max", 0, "SIZE|auto", "auto", keys, at_start,
    "The bytes that all jobs' stores, unread answers and waiting requests may take. auto: three "
    "quarters of the cgroup's limit, or half of the machine's memory."}, memory_max},
  {{"connections-per-job-max", 0, "N", "32768", keys, live, "Connections of one job."},
   [](Config& c, std::string_view v) {
     return take::store(read_integer(v, 1, connections_limit), c.rules.connections_per_job_max); }},
  {{"connections-per-peer-max", 0, "N", "32768", keys, at_start, "Connections from one address."},
   [](Config& c, std::string_view v) {
     return take::store(read_integer(v, 1, connections_limit), c.rules.connections.peer); }},
  {{"asked-time-max", 0, "TIME", "24h", keys, live,
    "The longest lease, join timeout, last call, reconnect grace and pause before a restart that "
    "a node may ask for."},
   [](Config& c, std::string_view v) {
     return take::store(read_duration(v), c.rules.asked_time_max); }},
  {{"remember", 0, "TIME", "10m", keys, live,
    "How long a finished job is shown, and its nodes that come late are told how it ended."},
   [](Config& c, std::string_view v) { return take::store(read_duration(v), c.rules.remember); }},
  {{"drain-timeout", 0, "TIME", "30s", keys, live,
    "How long running jobs may go on when the daemon is asked to stop; with the state in etcd they "
    "go on with the next leader."},
   take::duration<&Config::drain_timeout>},
  {{"log-level", 0, "debug|info|warning|error", "info", keys, live, "The least that is logged."},
   take::choice<&Config::log_level, levels>},
  {{"log-format", 0, "text|json", "text", keys, live,
    "The form of a log line: for people and the journal, or a JSON object."},
   take::choice<&Config::log_format, log_forms>},

  {{"config", 0, "FILE", "", others, {}, "Read this TOML file first; without it none is read."},
   take::text<&Config::config>},
  {{"check", 0, "", "0", others, {}, "Check the configuration, say what is wrong, and leave."},
   take::flag<&Config::check>},
  {{"help", 'h', "", "", others, {}, "Print this."}, nullptr},
  {{"version", 0, "", "", others, {}, "Print the version."}, nullptr},
});
// clang-format on

}  // namespace

const OptionTable& dlaunchd_options() {
  static const OptionTable table(
      "dlaunchd",
      "Usage: dlaunchd [options]\n"
      "       dlaunchd job-key ID [options]\n"
      "       dlaunchd check FILE | backup FILE TO | restore FROM FILE\n"
      "\n"
      "The rendezvous daemon: agents (dlaunch --rdzv-endpoint HOST:PORT --rdzv-id JOB)\n"
      "meet here. dlaunchd job-key prints the key of one job, for --secret-file of its\n"
      "nodes. check, backup and restore are for a state file that no dlaunchd uses; one\n"
      "that runs saves its own (dlaunch ctl backup).\n",
      rows,
      {"The command line wins over the file. A reload is what SIGHUP asks for. TIME is 500ms, 30 "
       "(seconds), 2m or 1h."});
  return table;
}

std::variant<Config, EarlyExit> read_config(std::span<const std::string> arguments,
                                            const FileReader& read_file, std::size_t words_most) {
  Config config;
  if (auto stop = config.given.take_arguments(arguments, {.most = words_most}, config.words)) {
    return *std::move(stop);
  }
  if (auto stop = config.given.take_file(read_file)) return *std::move(stop);
  if (auto stop = config.given.apply(rows, config)) return *std::move(stop);
  return config;
}

std::optional<std::string> exposure(const Config& config, bool secret) {
  if (secret) return std::nullopt;
  for (const auto& at : config.listen) {
    if (!at.path.empty() || is_loopback_name(at.host)) continue;
    return config.given.as_written("listen") +
           ": beyond loopback a secret is needed, since anyone who can connect to " +
           to_string(at) +
           " could take part in any job; set secret-file, or listen on 127.0.0.1 or [::1]";
  }
  return std::nullopt;
}

std::optional<std::string> doubled_address(const Config& config) {
  for (auto one = config.listen.begin(); one != config.listen.end(); ++one) {
    for (auto other = config.listen.begin(); other != one; ++other) {
      if (!is_one_address(*one, *other)) continue;
      return config.given.as_written("listen") + ": " +
             (*one == *other ? to_string(*one) + " is given twice"
                             : to_string(*other) + " and " + to_string(*one) + " are one address") +
             "; leave one out";
    }
    if (!config.http || !is_one_address(*one, *config.http)) continue;
    return config.given.as_written("http") + ": agents come in at " + to_string(*one) +
           "; the status needs a port of its own";
  }
  return std::nullopt;
}

std::vector<std::string> unchangeable(const Config& before, const Config& now) {
  std::vector<std::string> names;
  for (const auto& [option, apply] : rows) {
    const bool fixed = option.traits.file && !option.traits.reload;
    const bool same = before.given.of(option.flag).value == now.given.of(option.flag).value;
    if (fixed && !same) names.emplace_back(option.flag);
  }
  return names;
}

Config reloaded(const Config& before, const Config& now) {
  Config config;
  config.given = before.given;
  for (const auto& [option, apply] : rows) {
    if (option.traits.reload) config.given.replace(now.given.of(option.flag));
  }
  config.given.apply(rows, config);
  // The start has completed them by what the service manager gives.
  config.listen = before.listen;
  config.state = before.state;
  return config;
}

std::string to_string(const ListenAt& at) {
  if (!at.path.empty()) return std::string(unix_prefix) + at.path;
  return host_port(at.host, at.port);
}

}  // namespace dlaunch::rendezvous
