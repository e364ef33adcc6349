#include "launcher/request/option_values.hpp"

#include "launcher/request/option_table.hpp"
#include "launcher/request/variables.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <span>

namespace dlaunch::launcher {

namespace {

constexpr int local_ranks_max = 4096;

/// The keys of torchrun's rendezvous: the ones that dlaunch uses, and the ones that it does not
/// need.
constexpr auto rendezvous_keys = std::to_array<std::string_view>({
    "join_timeout",
    "timeout",
    "last_call_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "close_timeout",
    "heartbeat_timeout",
    "read_timeout",
    "is_host",
    "store_type",
    "use_libuv",
    "rank",
    "ttl",
    "protocol",
    "cert",
    "key",
    "cacert",
    "ssl_cert",
    "ssl_cert_key",
    "ca_cert",
    "etcd_prefix",
    "min_workers",
    "max_workers",
});

std::optional<int> signal_number(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int number = 1; number < SIGRTMIN; ++number) {
    const char* known = ::sigabbrev_np(number);
    if (known != nullptr && name == known) return number;
  }
  if (!name.starts_with("RTMIN")) return std::nullopt;
  name.remove_prefix(5);
  if (name.empty()) return SIGRTMIN;
  if (!name.starts_with('+')) return std::nullopt;
  const auto offset = read_integer(name.substr(1), 0, SIGRTMAX - SIGRTMIN);
  if (const auto* value = std::get_if<long>(&offset)) return SIGRTMIN + static_cast<int>(*value);
  return std::nullopt;
}

/// "a:4", "me@a", "[::1]:4", "a slots=4".
Read<HostAsked> read_host(std::span<const std::string_view> words) {
  if (words.empty()) return Complaint{"a host's name is missing"};
  std::string_view name = words.front(), count;
  const bool brackets = name.starts_with('[') && name.find(']') != std::string_view::npos;
  const auto colon = name.find(':', brackets ? name.find(']') : 0);
  if (colon != std::string_view::npos) {
    count = name.substr(colon + 1);
    name = name.substr(0, colon);
    if (count.empty())
      return Complaint{in_quotes(words.front()) + " lacks a number behind its ':'"};
  }
  if (brackets) name = name.substr(1, name.size() - 2);
  for (const auto word : words.subspan(1)) {
    if (!word.starts_with("slots=") || !count.empty()) {
      return Complaint{in_quotes(word) + " behind a host's name is not slots=N"};
    }
    count = word.substr(6);
  }
  const auto user = name.find('@');
  const auto bare = user == std::string_view::npos ? name : name.substr(user + 1);
  if (bare.empty()) return Complaint{"a host's name is missing"};
  // ssh would take it for an option.
  if (name.starts_with('-')) return Complaint{in_quotes(name) + " is no host's name"};
  if (auto complaint = check_host(bare)) return *std::move(complaint);
  HostAsked host{std::string(name), std::nullopt};
  if (count.empty()) return host;
  const auto number = read_integer(count, 1, workers_max);
  if (const auto* complaint = std::get_if<Complaint>(&number)) {
    return Complaint{in_quotes(words.front()) + ": " + complaint->sentence};
  }
  host.workers = static_cast<int>(std::get<long>(number));
  return host;
}

/// In the year 2261; a clock of nanoseconds goes no further.
constexpr long last_second = 9'214'646'399;

/// "2026-11-23T14:00Z", with seconds or without.
std::optional<std::chrono::sys_seconds> date_in(std::string_view text) {
  constexpr std::string_view form = "dddd-dd-ddTdd:dd:ddZ";
  const bool short_form = text.size() == form.size() - 3;
  if (text.size() != form.size() && !short_form) return std::nullopt;
  std::string whole(text);
  if (short_form) whole.insert(whole.size() - 1, ":00");
  for (std::size_t i = 0; i < form.size(); ++i) {
    const bool digit = whole[i] >= '0' && whole[i] <= '9';
    if (form[i] == 'd' ? !digit : whole[i] != form[i]) return std::nullopt;
  }
  const auto number = [&](std::size_t at, std::size_t size) {
    return static_cast<int>(
        std::get<long>(read_integer(std::string_view(whole).substr(at, size), 0, 9999)));
  };
  const std::chrono::year_month_day day(std::chrono::year(number(0, 4)),
                                        std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                        std::chrono::day(static_cast<unsigned>(number(8, 2))));
  const int hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (!day.ok() || hour > 23 || minute > 59 || second > 59) return std::nullopt;
  const auto at = std::chrono::sys_days(day) + std::chrono::hours(hour) +
                  std::chrono::minutes(minute) + std::chrono::seconds(second);
  const auto since_1970 = at.time_since_epoch().count();
  if (since_1970 < 1 || since_1970 > last_second) return std::nullopt;
  return at;
}

std::optional<Streams> streams_of_digit(std::string_view text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  const int bits = text[0] - '0';
  return Streams{.out = (bits & 1) != 0, .err = (bits & 2) != 0};
}

}  // namespace

Read<HealthAt> read_health_at(std::string_view text) {
  if (text.find_first_not_of("0123456789") == std::string_view::npos) {
    auto port = read_integer(text, 0, 65535);
    if (auto* complaint = std::get_if<Complaint>(&port)) return std::move(*complaint);
    return HealthAt{"127.0.0.1", static_cast<std::uint16_t>(std::get<long>(port))};
  }
  auto read = read_endpoint(text);
  if (auto* complaint = std::get_if<Complaint>(&read)) return std::move(*complaint);
  auto& endpoint = std::get<EndpointAsked>(read);
  if (!endpoint.port || endpoint.host.empty()) {
    return Complaint{in_quotes(text) + " is neither a port nor HOST:PORT"};
  }
  return HealthAt{std::move(endpoint.host), *endpoint.port};
}

Read<StreamsByRank> read_streams(std::string_view text) {
  const auto usage = [&](std::string_view part) {
    return Complaint{in_quotes(part) +
                     " is not 0 (none), 1 (stdout), 2 (stderr), 3 (both), nor RANK:0..3,..."};
  };
  StreamsByRank streams;
  if (text.find(':') == std::string_view::npos) {
    const auto everyone = streams_of_digit(text);
    if (!everyone) return usage(text);
    streams.everyone = *everyone;
    return streams;
  }
  for (const auto part : split(text, ',')) {
    const auto colon = part.find(':');
    if (colon == std::string_view::npos) return usage(part);
    const auto rank = read_integer(part.substr(0, colon), 0, local_ranks_max - 1);
    const auto chosen = streams_of_digit(part.substr(colon + 1));
    if (std::holds_alternative<Complaint>(rank) || !chosen) return usage(part);
    const int local_rank = static_cast<int>(std::get<long>(rank));
    if (!streams.listed.emplace(local_rank, *chosen).second) {
      return Complaint{"local rank " + std::to_string(local_rank) + " is listed twice"};
    }
  }
  return streams;
}

Read<std::vector<int>> read_ranks(std::string_view text) {
  std::vector<int> ranks;
  for (const auto part : split(text, ',')) {
    const auto rank = read_integer(part, 0, local_ranks_max - 1);
    if (const auto* complaint = std::get_if<Complaint>(&rank)) return *complaint;
    ranks.push_back(static_cast<int>(std::get<long>(rank)));
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

Read<std::vector<std::string>> read_words(std::string_view text) {
  constexpr std::size_t words_max = 1024;
  std::vector<std::string> words(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool comma = text[at] == ',';
    if (comma && text.substr(at + 1).starts_with(','))
      ++at;
    else if (comma) {
      words.emplace_back();
      continue;
    }
    words.back() += text[at];
  }
  std::erase(words, "");
  if (words.size() > words_max) {
    return Complaint{"at most " + std::to_string(words_max) + " words are allowed"};
  }
  return words;
}

Read<int> read_signal(std::string_view text) {
  const auto number = signal_number(text);
  if (!number) return Complaint{in_quotes(text) + " is not the name of a signal"};
  if (*number == SIGKILL || *number == SIGSTOP || *number == SIGCHLD) {
    return Complaint{std::string(text) + " cannot be handed on"};
  }
  return *number;
}

Read<DeadlineAsked> read_deadline(std::string_view text) {
  DeadlineAsked deadline;
  if (text.starts_with('@')) {
    const auto seconds = read_integer(text.substr(1), 1, last_second);
    if (const auto* complaint = std::get_if<Complaint>(&seconds)) return *complaint;
    deadline.at = std::chrono::sys_seconds(std::chrono::seconds(std::get<long>(seconds)));
    return deadline;
  }
  if (const auto after = parse_duration(text)) return deadline.after = *after, deadline;
  deadline.at = date_in(text);
  if (deadline.at) return deadline;
  return Complaint{in_quotes(text) +
                   " is neither a duration such as 90m nor a time such as 2026-11-23T14:00Z (UTC) "
                   "or @1795442400"};
}

Read<std::vector<int>> read_signals(std::string_view text) {
  std::vector<int> numbers;
  for (const auto name : split(text, ',')) {
    const auto read = read_signal(name);
    if (const auto* complaint = std::get_if<Complaint>(&read)) return *complaint;
    const int number = std::get<int>(read);
    if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) {
      numbers.push_back(number);
    }
  }
  if (numbers.empty()) return Complaint{"at least one signal is needed"};
  return numbers;
}

Read<std::vector<std::string>> read_program(std::string_view text) {
  std::vector<std::string> words;
  for (const auto word : split(text, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  if (words.empty()) return Complaint{"the value is empty"};
  return words;
}

Read<std::vector<HostAsked>> read_hosts(std::string_view text) {
  constexpr std::size_t hosts_max = 10'000;
  std::vector<HostAsked> hosts;
  std::string plain(text);
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return c == '\t' || c == '\r'; }, ' ');
  for (std::string_view line : split(plain, '\n')) {
    line = line.substr(0, line.find('#'));
    for (const auto part : split(line, ',')) {
      auto words = split(part, ' ');
      std::erase(words, std::string_view());
      if (words.empty() && part.size() == line.size()) continue;  // A line without a host.
      auto host = read_host(words);
      if (auto* complaint = std::get_if<Complaint>(&host)) return std::move(*complaint);
      hosts.push_back(std::get<HostAsked>(std::move(host)));
      if (hosts.size() > hosts_max) {
        return Complaint{"at most " + std::to_string(hosts_max) + " hosts are allowed"};
      }
    }
  }
  if (hosts.empty()) return Complaint{"no host is named"};
  return hosts;
}

Read<VariableAsked> read_variable(std::string_view text) {
  const auto equals = text.find('=');
  VariableAsked variable;
  variable.name = text.substr(0, equals);
  if (variable.name.empty()) return Complaint{"a name is missing; NAME=VALUE is wanted, or NAME"};
  if (is_worker_variable(variable.name)) {
    return Complaint{"dlaunch sets " + variable.name + " for each worker itself"};
  }
  if (is_mpi_variable(variable.name)) {
    return Complaint{"by " + variable.name +
                     " a launcher tells an MPI its ranks, which here dlaunch does itself"};
  }
  if (const Option* option = option_of_variable(variable.name)) {
    return Complaint{"no worker inherits " + variable.name + ", which stands for the option --" +
                     std::string(option->flag)};
  }
  if (equals != std::string_view::npos) variable.value = text.substr(equals + 1);
  return variable;
}

Read<std::map<std::string, std::string>> read_pairs(std::string_view text) {
  std::map<std::string, std::string> pairs;
  for (auto part : split(text, ',')) {
    part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
    const auto equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return Complaint{in_quotes(part) + " is not KEY=VALUE"};
    }
    pairs[std::string(part.substr(0, equals))] = part.substr(equals + 1);
  }
  return pairs;
}

Read<RendezvousTimes> read_rendezvous_conf(std::string_view text, RendezvousTimes times,
                                           std::vector<std::string>& unused) {
  constexpr long attempts_max = 1000;
  auto pairs = read_pairs(text);
  if (auto* complaint = std::get_if<Complaint>(&pairs)) return std::move(*complaint);
  for (const auto& [key, value] : std::get<0>(pairs)) {
    std::chrono::milliseconds* time = nullptr;
    if (key == "join_timeout" || key == "timeout") time = &times.join;
    if (key == "last_call_timeout") time = &times.last_call;
    if (key == "keep_alive_interval") time = &times.heartbeat;
    if (time != nullptr) {
      const auto read = parse_duration(value);
      if (!read || (time != &times.last_call && read->count() == 0)) {
        return Complaint{key + ": " + in_quotes(value) +
                         " is not a duration such as 5, 500ms or 2m"};
      }
      *time = *read;
    } else if (key == "keep_alive_max_attempt") {
      const auto read = read_integer(value, 1, attempts_max);
      if (const auto* wrong = std::get_if<Complaint>(&read))
        return Complaint{key + ": " + wrong->sentence};
      times.heartbeats_missed_max = static_cast<int>(std::get<long>(read));
    } else {
      const auto meant = nearest_word(key, rendezvous_keys);
      if (!meant.empty() && meant != key) {
        return Complaint{"there is no " + key + "; did you mean " + std::string(meant) + "?"};
      }
      unused.push_back(key);
    }
  }
  return times;
}

Read<RestartPauses> read_restart_backoff(std::string_view text) {
  const auto colon = text.find(':');
  const auto first = read_duration(text.substr(0, colon));
  if (const auto* complaint = std::get_if<Complaint>(&first)) return *complaint;
  RestartPauses pauses;
  pauses.first = std::get<std::chrono::milliseconds>(first);
  pauses.longest = std::max(pauses.first, std::chrono::milliseconds(10'000));
  if (colon == std::string_view::npos) return pauses;
  const auto longest = read_duration(text.substr(colon + 1));
  if (const auto* complaint = std::get_if<Complaint>(&longest)) return *complaint;
  pauses.longest = std::get<std::chrono::milliseconds>(longest);
  if (pauses.longest < pauses.first) {
    return Complaint{"the first pause is longer than the longest"};
  }
  return pauses;
}

Read<NodesAsked> read_nodes(std::string_view text) {
  constexpr long nodes_max = 100'000;
  const auto colon = text.find(':');
  const auto least = read_integer(text.substr(0, colon), 1, nodes_max);
  if (const auto* complaint = std::get_if<Complaint>(&least)) return *complaint;
  NodesAsked nodes;
  nodes.least = nodes.most = static_cast<int>(std::get<long>(least));
  if (colon == std::string_view::npos) return nodes;
  const auto most = read_integer(text.substr(colon + 1), 1, nodes_max);
  if (const auto* complaint = std::get_if<Complaint>(&most)) return *complaint;
  nodes.most = static_cast<int>(std::get<long>(most));
  if (nodes.most < nodes.least) return Complaint{"the minimum is larger than the maximum"};
  return nodes;
}

bool is_numeric_host(std::string_view host) {
  if (host.find(':') != std::string_view::npos) return true;
  return !host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace dlaunch::launcher
