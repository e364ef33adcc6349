#include "rendezvous/http/request.hpp"

#include <algorithm>
#include <charconv>

namespace dlaunch::rendezvous {

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_text(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// Takes the text before the next `end`, and `end` itself, off the front.
std::string_view take_up_to(std::string_view& text, char end) {
  const auto at = text.find(end);
  const auto taken = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return taken;
}

/// A number from 0 to max, in digits alone.
bool is_number(std::string_view text, unsigned max) {
  unsigned value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return !text.empty() && error == std::errc{} && stop == end && value <= max;
}

/// "127.0.0.1" and its like, of four numbers.
bool is_loopback_v4(std::string_view text) {
  if (take_up_to(text, '.') != "127") return false;
  for (int i = 0; i < 2; ++i) {
    if (!is_number(take_up_to(text, '.'), 255)) return false;
  }
  return is_number(text, 255);
}

/// The weight of a media range in thousandths, by its parameter q; a malformed one counts as 0.
int weight_of(std::string_view parameters) {
  while (!parameters.empty()) {
    std::string_view value = trimmed(take_up_to(parameters, ';'));
    if (!same_text(trimmed(take_up_to(value, '=')), "q")) continue;
    value = trimmed(value);
    int thousandths = 0, digit = 1000;
    for (std::size_t i = 0; i < value.size() && digit > 0; ++i) {
      if (i == 1 && value[i] == '.') continue;
      if (value[i] < '0' || value[i] > '9') return 0;
      thousandths += (value[i] - '0') * digit;
      digit /= 10;
    }
    return thousandths > 1000 ? 0 : thousandths;
  }
  return 1000;
}

}  // namespace

std::optional<AbsoluteTarget> absolute_target(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!same_text(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const auto path = std::min(target.find_first_of("/?"), target.size());
    const bool has_path = target.substr(path).starts_with('/');
    return AbsoluteTarget{target.substr(0, path), has_path ? target.substr(path) : "/"};
  }
  return std::nullopt;
}

bool is_loopback_host(std::string_view host) {
  std::string_view port;
  if (host.starts_with('[')) {
    const auto end = host.find(']');
    if (end == std::string_view::npos) return false;
    port = host.substr(end + 1);
    host = host.substr(1, end - 1);
    if (host != "::1") return false;
  } else {
    const auto colon = host.find(':');
    if (colon != std::string_view::npos) port = host.substr(colon);
    host = host.substr(0, colon);
    if (!same_text(host, "localhost") && !is_loopback_v4(host)) return false;
  }
  return port.empty() || (port.front() == ':' && is_number(port.substr(1), 65535));
}

std::optional<Page> refusal_of_foreign(const PageRequest& request) {
  if (!request.host.empty() && !is_loopback_host(request.host)) {
    return sentence_page(403,
                         "the status is served under this machine's loopback names only, as "
                         "127.0.0.1 or localhost; a proxy has to send such a Host");
  }
  if (request.origin.empty()) return std::nullopt;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!request.origin.starts_with(scheme)) continue;
    if (same_text(request.origin.substr(scheme.size()), request.host)) return std::nullopt;
  }
  return sentence_page(403, "a page of another site may not read the status");
}

bool prefers_openmetrics(std::string_view accept) {
  int openmetrics = 0, text = 0;
  while (!accept.empty()) {
    std::string_view parameters = take_up_to(accept, ',');
    const auto range = trimmed(take_up_to(parameters, ';'));
    if (same_text(range, "application/openmetrics-text")) {
      openmetrics = std::max(openmetrics, weight_of(parameters));
    } else if (same_text(range, "text/plain") || same_text(range, "text/*") || range == "*/*") {
      text = std::max(text, weight_of(parameters));
    }
  }
  return openmetrics > 0 && openmetrics >= text;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    if (text.front() != '%') {
      decoded += text.front();
      text.remove_prefix(1);
      continue;
    }
    unsigned value = 0;
    const auto digits = text.substr(1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || error != std::errc{} || end != digits.data() + 2) return {};
    decoded += static_cast<char>(value);
    text.remove_prefix(3);
  }
  return decoded;
}

}  // namespace dlaunch::rendezvous
