#include "rendezvous/daemon/config.hpp"

#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/toml.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace dlaunch::rendezvous {

namespace {

using Result = std::optional<Complaint>;

constexpr std::size_t listeners_max = 16;
constexpr long jobs_limit = 100'000;
constexpr long nodes_limit = 100'000;
constexpr long keys_limit = 1L << 30;
constexpr long bytes_least = 1L << 20;
constexpr long bytes_limit = 1L << 40;

/// One key of the file, which is an option of the command line, too.
struct Key {
  std::string_view name;
  std::string_view argument;
  std::string_view standard;
  bool live = false;  ///< A reload changes it.
  std::string_view help;
  Result (*apply)(Config& config, std::string_view value) = nullptr;
};

template <class Target>
Result store(const Read<long>& read, Target& target) {
  if (const auto* complaint = std::get_if<Complaint>(&read)) return *complaint;
  target = static_cast<Target>(std::get<long>(read));
  return std::nullopt;
}

Read<ListenAt> read_address(std::string_view text) {
  const auto read = read_endpoint(text);
  if (const auto* wrong = std::get_if<Complaint>(&read)) {
    return Complaint{in_quotes(text) + ": " + wrong->sentence};
  }
  const auto& [host, port] = std::get<EndpointAsked>(read);
  if (!port) {
    return Complaint{in_quotes(text) + " is not HOST:PORT, as in 127.0.0.1:29400 or [::1]:29400"};
  }
  return ListenAt{.host = host, .port = *port};
}

Result listen(Config& config, std::string_view value) {
  config.listen.clear();
  for (const auto part : split(value, ',')) {
    auto at = read_address(part);
    if (const auto* complaint = std::get_if<Complaint>(&at)) return *complaint;
    config.listen.push_back(std::get<ListenAt>(std::move(at)));
  }
  if (config.listen.empty()) return Complaint{"at least one HOST:PORT is needed"};
  if (config.listen.size() > listeners_max) {
    return Complaint{"at most " + std::to_string(listeners_max) + " addresses are allowed"};
  }
  return std::nullopt;
}

Result http(Config& config, std::string_view value) {
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

Result secret_file(Config& config, std::string_view value) {
  config.secret_file = value;
  return std::nullopt;
}

Result state(Config& config, std::string_view value) {
  config.state = value;
  if (value == "memory") return std::nullopt;
  if (value.starts_with("sqlite:") || value.starts_with("etcd:")) {
    return Complaint{"not in this build, which keeps the jobs in memory; use memory"};
  }
  return Complaint{in_quotes(value) + " is none of memory, sqlite:PATH, etcd:URL,..."};
}

/// "4GiB", "512MiB", "64KiB" or a number of bytes.
Result bytes_max(Config& config, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, int>, 3> units = {
      {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}}};
  int shift = 0;
  for (const auto& [unit, bits] : units) {
    if (!value.ends_with(unit)) continue;
    value.remove_suffix(unit.size());
    shift = bits;
  }
  const auto number = read_integer(value, 0, bytes_limit >> shift);
  if (const auto* complaint = std::get_if<Complaint>(&number)) {
    return Complaint{complaint->sentence + " (bytes, or with KiB, MiB or GiB behind)"};
  }
  const long bytes = std::get<long>(number) << shift;
  if (bytes < bytes_least) return Complaint{"at least 1MiB is needed"};
  config.rules.limits.total_bytes = static_cast<std::size_t>(bytes);
  return std::nullopt;
}

template <class Target>
Result duration(std::string_view value, Target& target) {
  const auto read = parse_duration(value);
  if (!read) {
    return Complaint{in_quotes(value) +
                     " is not a duration such as 500ms, 30 (seconds), 2m or 1h, up to a year"};
  }
  target = *read;
  return std::nullopt;
}

Result log_level(Config& config, std::string_view value) {
  using Level = LogLine::Level;
  constexpr std::array<std::pair<std::string_view, Level>, 4> levels = {
      {{"debug", Level::debug},
       {"info", Level::info},
       {"warning", Level::warning},
       {"error", Level::error}}};
  for (const auto& [name, level] : levels) {
    if (value == name) return config.log_level = level, std::nullopt;
  }
  return Complaint{in_quotes(value) + " is none of debug, info, warning, error"};
}

constexpr bool live = true;
constexpr bool at_start = false;

// clang-format off
constexpr auto keys = std::to_array<Key>({
  {"listen", "HOST:PORT", "127.0.0.1:29400", at_start,
   "Where agents come in; on the command line it may be repeated. Sockets from the service manager "
   "take its place. Beyond loopback a secret is needed.", listen},
  {"http", "HOST:PORT|off", "127.0.0.1:29401", at_start,
   "Where the status is served: loopback only.", http},
  {"secret-file", "FILE", "", at_start,
   "The secret that agents must know. Empty: dlaunchd.secret among the service manager's "
   "credentials, where it is there.", secret_file},
  {"state", "memory", "memory", at_start,
   "Where jobs are kept over a restart; this build keeps them in memory.", state},
  {"jobs-max", "N", "1024", live, "Unfinished jobs at once.",
   [](Config& c, std::string_view v) {
     return store(read_integer(v, 1, jobs_limit), c.rules.jobs_max); }},
  {"nodes-per-job-max", "N", "20000", live, "Nodes in one job.",
   [](Config& c, std::string_view v) {
     return store(read_integer(v, 1, nodes_limit), c.rules.nodes_per_job_max); }},
  {"keys-max", "N", "1048576", at_start, "Keys in one job's store.",
   [](Config& c, std::string_view v) {
     return store(read_integer(v, 1, keys_limit), c.rules.limits.keys); }},
  {"bytes-max", "SIZE", "4GiB", at_start, "Keys and values in one job's store, in bytes.", bytes_max},
  {"remember", "TIME", "10m", live, "How long a finished job is shown and its name refused.",
   [](Config& c, std::string_view v) { return duration(v, c.rules.remember); }},
  {"drain-timeout", "TIME", "30s", live,
   "How long running jobs may go on when the daemon is asked to stop.",
   [](Config& c, std::string_view v) { return duration(v, c.drain_timeout); }},
  {"log-level", "debug|info|warning|error", "info", live, "The least that is logged.", log_level},
});
// clang-format on

const Key* find_key(std::string_view name) {
  const auto* found =
      std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.name == name; });
  return found == keys.end() ? nullptr : found;
}

/// "; did you mean jobs-max?", where something is near enough.
std::string suggestion(std::string_view name, std::string_view dashes) {
  constexpr std::size_t far = 3;
  constexpr std::size_t longest = 40;  // So much is compared: any key is shorter.
  const Key* nearest = nullptr;
  std::size_t least = far;
  for (const auto& key : keys) {
    const auto distance = edit_distance(name.substr(0, longest), key.name);
    if (distance < least) least = distance, nearest = &key;
  }
  if (nearest == nullptr) return "; dlaunchd --help lists what there is";
  return "; did you mean " + std::string(dashes) + std::string(nearest->name) + "?";
}

Exit refuse(int code, const std::string& sentence) {
  return {.code = code, .text = "dlaunchd: " + sentence + "\n"};
}

/// The value found for one key, and where.
struct Given {
  std::string value;
  std::string where;  ///< "--listen" or "FILE:3: listen".
  int code = exit_code::usage;
};

/// Reads one command line and the file it names; every step returns what ends it early, or nothing.
class Reader {
 public:
  using Stop = std::optional<Exit>;

  Stop scan(std::span<const std::string> arguments) {
    for (std::size_t next = 0; next < arguments.size(); ++next) {
      std::string_view name = arguments[next];
      if (name == "--help" || name == "-h") return Exit{.code = 0, .text = dlaunchd_help()};
      if (name == "--version") return Exit{.code = 0, .text = "dlaunchd " DLAUNCH_VERSION "\n"};
      if (name == "--check") {
        config_.check = true;
        continue;
      }
      if (!name.starts_with("--")) {
        return refuse(exit_code::usage, "unexpected argument " + clipped(name) +
                                            "; dlaunchd --help lists the options");
      }
      const auto equals = name.find('=');
      std::optional<std::string> value;
      if (equals != std::string_view::npos) value = name.substr(equals + 1);
      name = name.substr(2, equals == std::string_view::npos ? equals : equals - 2);
      const Key* key = find_key(name);
      if (key == nullptr && name != "config") {
        return refuse(exit_code::usage,
                      "unknown option --" + clipped(name) + suggestion(name, "--"));
      }
      if (!value) {
        if (next + 1 == arguments.size()) {
          return refuse(exit_code::usage, "--" + std::string(name) + " needs a value: " +
                                              std::string(key ? key->argument : "FILE"));
        }
        value = arguments[++next];
      }
      take_argument(key, *value);
    }
    return std::nullopt;
  }

  Stop take_file(const FileReader& read_file) {
    if (config_.config.empty()) return std::nullopt;
    const std::string& path = config_.config;
    const auto text = read_file(path);
    if (!text) return refuse(exit_code::configuration, "--config " + path + ": cannot be read");
    const auto items = read_toml(*text);
    if (const auto* complaint = std::get_if<Complaint>(&items)) {
      return refuse(exit_code::configuration, path + ": " + complaint->sentence);
    }
    std::array<int, keys.size()> seen{};
    for (const auto& [name, value, line] : std::get<0>(items)) {
      const std::string where = path + (line == 0 ? "" : ":" + std::to_string(line)) + ": ";
      const Key* key = find_key(name);
      if (key == nullptr) {
        return refuse(exit_code::configuration,
                      where + "unknown key " + clipped(name) + suggestion(name, ""));
      }
      if (seen[index_of(*key)]++ > 0) {
        return refuse(exit_code::configuration, where + name + " is given twice; leave one out");
      }
      auto& given = given_[index_of(*key)];
      if (!given) {
        given = {.value = value, .where = where + name, .code = exit_code::configuration};
      }
    }
    return std::nullopt;
  }

  Stop apply() {
    for (const auto& key : keys) {
      key.apply(config_, key.standard);  // The default is text like any other value.
      const auto& given = given_[index_of(key)];
      if (&key == find_key("listen")) config_.listen_from = given ? given->where : "the default";
      if (!given) continue;
      if (const auto complaint = key.apply(config_, given->value)) {
        const std::string between = given->code == exit_code::usage ? " " : " = ";
        return refuse(given->code,
                      given->where + between + clipped(given->value) + ": " + complaint->sentence);
      }
    }
    return std::nullopt;
  }

  Config finish() { return std::move(config_); }

 private:
  static std::size_t index_of(const Key& key) {
    return static_cast<std::size_t>(&key - keys.data());
  }

  /// The last of equals counts, save for addresses, which add up.
  void take_argument(const Key* key, const std::string& value) {
    if (key == nullptr) {
      config_.config = value;
      return;
    }
    auto& given = given_[index_of(*key)];
    if (given && key->name == "listen") {
      given->value += "," + value;
    } else {
      given = {.value = value, .where = "--" + std::string(key->name), .code = exit_code::usage};
    }
  }

  Config config_;
  std::array<std::optional<Given>, keys.size()> given_;
};

}  // namespace

std::variant<Config, Exit> read_config(std::span<const std::string> arguments,
                                       const FileReader& read_file) {
  Reader reader;
  if (auto stop = reader.scan(arguments)) return *stop;
  if (auto stop = reader.take_file(read_file)) return *stop;
  if (auto stop = reader.apply()) return *stop;
  return reader.finish();
}

std::optional<std::string> exposure(const Config& config, bool secret) {
  if (secret) return std::nullopt;
  for (const auto& at : config.listen) {
    if (is_loopback_name(at.host)) continue;
    return config.listen_from + " = " + to_string(at) +
           ": beyond loopback a secret is needed, since anyone who can connect could take part in "
           "any job; set secret-file, or listen on 127.0.0.1 or [::1]";
  }
  return std::nullopt;
}

std::vector<std::string> unchangeable(const Config& before, const Config& now) {
  std::vector<std::string> names;
  if (before.listen != now.listen) names.emplace_back("listen");
  if (before.http != now.http) names.emplace_back("http");
  if (before.secret_file != now.secret_file) names.emplace_back("secret-file");
  if (before.state != now.state) names.emplace_back("state");
  const auto &old = before.rules.limits, &asked = now.rules.limits;
  if (old.keys != asked.keys) names.emplace_back("keys-max");
  if (old.total_bytes != asked.total_bytes) names.emplace_back("bytes-max");
  return names;
}

std::string to_string(const ListenAt& at) { return host_port(at.host, at.port); }

std::string dlaunchd_help() {
  constexpr std::size_t width = 100;
  constexpr std::size_t indent = 6;
  std::string text =
      "dlaunchd: the rendezvous daemon. Agents (dlaunch --rdzv-endpoint HOST:PORT --rdzv-id JOB) "
      "meet here.\n\n  dlaunchd [options]\n  dlaunchd job-key ID [options]    print the key of one "
      "job, for --secret-file of its "
      "nodes\n\nEvery option but the last four is a key of the "
      "configuration file, too; the command line wins.\n\n";
  const auto entry = [&](std::string_view head, std::string_view help) {
    text += "  " + std::string(head) + "\n";
    while (!help.empty()) {
      auto size = std::min(help.size(), width - indent);
      if (size < help.size()) size = help.rfind(' ', size);
      text += std::string(indent, ' ') + std::string(help.substr(0, size)) + "\n";
      help.remove_prefix(std::min(help.size(), size + 1));
    }
  };
  for (const auto& key : keys) {
    std::string help(key.help);
    if (!key.standard.empty()) help += " Default: " + std::string(key.standard) + ".";
    if (key.live) help += " Changed by a reload (SIGHUP).";
    entry("--" + std::string(key.name) + " " + std::string(key.argument), help);
  }
  entry("--config FILE", "Read this TOML file first; without it none is read.");
  entry("--check", "Check the configuration, say what is wrong, and leave.");
  entry("--help", "This text.");
  entry("--version", "The version.");
  return text;
}

}  // namespace dlaunch::rendezvous
