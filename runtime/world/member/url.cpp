#include "runtime/world/member/url.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/world/member/info.hpp"

#include <dlaunch/error.hpp>

namespace dlaunch {
namespace {

constexpr std::string_view forms =
    "dlaunch://, env://, tcp://host:port?rank=R&world_size=N or file://path";

Error url_error(std::string_view url, const std::string& why) {
  return Error(Errc::misuse, "the init URL " + in_quotes(url) + " " + why);
}

void read_query(std::string_view url, std::string_view query, InitUrl& parsed) {
  while (!query.empty()) {
    const auto end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view{} : query.substr(end + 1);
    const auto equals = pair.find('=');
    const std::string name(pair.substr(0, equals));
    const std::string value(equals == std::string_view::npos ? "" : pair.substr(equals + 1));
    const std::string what = in_quotes(name) + " in the init URL " + in_quotes(url);
    const bool is_repeated =
        (name == "rank" && parsed.rank >= 0) || (name == "world_size" && parsed.world_size >= 0);
    if (is_repeated) throw url_error(url, "has " + in_quotes(name) + " twice");
    if (name == "rank") {
      parsed.rank = static_cast<int>(parse_number(what, value, 0, world_size_max));
    } else if (name == "world_size") {
      parsed.world_size = static_cast<int>(parse_number(what, value, 1, world_size_max));
    } else {
      throw url_error(url, "asks for " + in_quotes(name) + "; rank and world_size are known");
    }
  }
}

void read_host_port(std::string_view url, std::string_view text, InitUrl& parsed) {
  const auto colon = text.rfind(':');
  const bool bracketed = text.starts_with('[');
  if (colon == std::string_view::npos || (bracketed && text.rfind(']') != colon - 1)) {
    throw url_error(url, "has no port: it must read tcp://host:port");
  }
  const std::string_view host = text.substr(0, colon);
  parsed.host = bracketed ? host.substr(1, host.size() - 2) : host;
  if (parsed.host.empty()) throw url_error(url, "has no host: it must read tcp://host:port");
  if (!bracketed && parsed.host.find(':') != std::string::npos) {
    throw url_error(url, "has an IPv6 address without brackets: write tcp://[address]:port");
  }
  parsed.port =
      parse_port("the port in the init URL " + in_quotes(url), std::string(text.substr(colon + 1)));
}

}  // namespace

InitUrl parse_init_url(std::string_view url) {
  const auto mark = url.find("://");
  if (mark == std::string_view::npos) {
    throw url_error(url, "is none of " + std::string(forms));
  }
  const std::string_view scheme = url.substr(0, mark);
  std::string_view rest = url.substr(mark + 3);
  InitUrl parsed;
  if (scheme == "dlaunch" || scheme == "env") {
    parsed.scheme = scheme == "env" ? InitUrl::Scheme::env : InitUrl::Scheme::dlaunch;
    if (!rest.empty()) {
      throw url_error(url, "says more than " + std::string(scheme) + "://, which stands alone");
    }
    return parsed;
  }
  const auto question = rest.find('?');
  const std::string_view query =
      question == std::string_view::npos ? std::string_view{} : rest.substr(question + 1);
  rest = rest.substr(0, question);
  if (scheme == "tcp") {
    parsed.scheme = InitUrl::Scheme::tcp;
    read_host_port(url, rest, parsed);
  } else if (scheme == "file") {
    parsed.scheme = InitUrl::Scheme::file;
    parsed.path = rest;
    if (parsed.path.empty()) throw url_error(url, "names no file: it must read file:///path");
  } else {
    throw url_error(url, "is none of " + std::string(forms));
  }
  read_query(url, query, parsed);
  return parsed;
}

}  // namespace dlaunch
