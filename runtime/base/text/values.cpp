#include "runtime/base/text/values.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>

#include <arpa/inet.h>

namespace dlaunch {

namespace {

constexpr std::size_t host_bytes_max = 253;

}  // namespace

Read<std::string> read_job_id(std::string_view text) {
  constexpr std::size_t id_max = 128;
  if (text.empty()) return Complaint{"the value is empty"};
  if (text.size() > id_max) return Complaint{"at most 128 characters are allowed"};
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || (c != 0 && std::strchr(".,:;@%+=_-", c));
  });
  if (!plain || text == "." || text == "..") {
    return Complaint{"only letters, digits and .,:;@%+=_- are allowed"};
  }
  return std::string(text);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  if (text.empty()) return parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Read<long> read_integer(std::string_view text, long least, long most) {
  if (text.empty()) return Complaint{"a whole number is missing"};
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
    return Complaint{in_quotes(text) + " is not a whole number"};
  }
  const bool huge = error == std::errc::result_out_of_range;
  if (huge ? text.starts_with('-') : value < least) {
    return Complaint{"at least " + std::to_string(least) + " is needed"};
  }
  if (huge || value > most) return Complaint{"at most " + std::to_string(most) + " is allowed"};
  return value;
}

Read<bool> read_flag(std::string_view text) {
  for (const auto yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const auto no : {"0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  return Complaint{in_quotes(text) + " is neither 1 (true, yes, on) nor 0 (false, no, off)"};
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  constexpr double ms_max = 365.0 * 24 * 3600 * 1000;
  struct Unit {
    std::string_view name;
    double ms;
  };
  // "ms" before "s" and "m", since each is the end of the other.
  constexpr std::array<Unit, 4> units = {{{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}}};
  double factor = 1000;
  for (const auto& unit : units) {
    if (!text.ends_with(unit.name)) continue;
    text.remove_suffix(unit.name.size());
    factor = unit.ms;
    break;
  }
  // Plain decimals only: from_chars would take "inf", "nan" and exponents as well.
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string_view::npos) return {};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  if (value * factor > ms_max) return {};
  return std::chrono::milliseconds(static_cast<long>(value * factor + 0.5));
}

Read<std::chrono::milliseconds> read_duration(std::string_view text) {
  if (const auto read = parse_duration(text)) return *read;
  return Complaint{in_quotes(text) +
                   " is not a duration such as 500ms, 30 (seconds), 2m or 1h, up to a year"};
}

std::optional<Complaint> check_host(std::string_view host) {
  if (host.find(':') != std::string_view::npos) {
    // The zone is the system's to know: "fe80::1%eth0".
    const std::string address(host.substr(0, host.find('%')));
    in6_addr ignored{};
    if (::inet_pton(AF_INET6, address.c_str(), &ignored) == 1) return std::nullopt;
    return Complaint{in_quotes(host) + " is neither a host's name nor an address"};
  }
  const auto bad = std::find_if(host.begin(), host.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x80 && std::isalnum(byte) == 0 && c != '.' && c != '-' && c != '_';
  });
  if (bad == host.end() && host.size() <= host_bytes_max) return std::nullopt;
  if (bad == host.end()) return Complaint{"a host's name has at most 253 characters"};
  return Complaint{"there is no host " + in_quotes(host) + ": a name has no " +
                   in_quotes(std::string_view(&*bad, 1))};
}

Read<EndpointAsked> read_endpoint(std::string_view text) {
  if (const auto scheme = text.find("://"); scheme != std::string_view::npos) {
    const auto rest = text.substr(scheme + 3);
    return Complaint{in_quotes(text) + " is a URL; HOST:PORT is wanted, as in " +
                     std::string(rest.substr(0, rest.find('/')))};
  }
  EndpointAsked endpoint;
  std::string_view host = text;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return Complaint{"the closing ] is missing"};
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && !port.starts_with(':')) return Complaint{"after ] a :PORT is expected"};
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':'));
  }
  if (!port.empty()) {
    const auto number = read_integer(port.substr(1), 0, 65535);
    if (const auto* wrong = std::get_if<Complaint>(&number)) {
      return Complaint{"the port: " + wrong->sentence};
    }
    endpoint.port = static_cast<std::uint16_t>(std::get<long>(number));
  }
  if (host.empty()) return Complaint{"the host is missing"};
  if (auto wrong = check_host(host)) {
    const bool lacks_brackets = !text.starts_with('[') && host.find("::") != std::string_view::npos;
    if (!lacks_brackets) return *std::move(wrong);
    return Complaint{
        "an IPv6 address with a port stands in brackets, as in "
        "[::1]:" DLAUNCH_MEETING_PORT};
  }
  endpoint.host = host;
  return endpoint;
}

bool is_loopback_name(std::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  // Only a dotted address of four numbers: "127.example.org" is a name like any other.
  return host.starts_with("127.") &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
  constexpr std::size_t word_max = 40;
  if (word.size() > word_max) return {};
  const auto folded = [](std::string_view text) {
    std::string result(text);
    std::replace(result.begin(), result.end(), '_', '-');
    return result;
  };
  std::string_view best;
  // In a short word one letter makes another word.
  std::size_t best_distance = std::min<std::size_t>(word.size() / 4, 3) + 1;
  for (const auto candidate : known) {
    const auto distance = edit_distance(folded(word), folded(candidate));
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace dlaunch
