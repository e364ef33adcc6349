#pragma once

#include "rendezvous/service/service.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dlaunch::rendezvous {

/// The address where a socket is to listen; the host as it was written, without brackets.
struct ListenAt {
  std::string host;
  std::uint16_t port = 0;

  bool operator==(const ListenAt&) const = default;
};

/// The settings of dlaunchd: the command line over the file over the defaults. Each field is the
/// key of the same name.
struct Config {
  std::vector<ListenAt> listen;
  std::optional<ListenAt> http;  ///< Unset: off.
  std::string secret_file;
  std::string state;
  ServiceRules rules;
  std::chrono::milliseconds drain_timeout{};
  LogLine::Level log_level = LogLine::Level::info;
  std::string config;  ///< The file it was read from; empty for none.
  bool check = false;

  /// The origin of the value, for messages: "dlaunchd.toml:12: listen", "--listen".
  std::string listen_from;
};

/// There is nothing to serve: --help, --version, or a refusal. Text for stdout when the code is 0,
/// else for stderr; it ends in a newline.
struct Exit {
  int code = 0;
  std::string text;
};

/// Gives a file's text; nullopt where it cannot be read.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

/// A pure function of the arguments (without argv[0]) and the files. Checks values one by one and
/// against each other, save for what only the system knows.
std::variant<Config, Exit> read_config(std::span<const std::string> arguments,
                                       const FileReader& read_file);

/// Why this configuration may not be served, given whether there is a secret: one to listen beyond
/// loopback without one. Nullopt: it may.
std::optional<std::string> exposure(const Config& config, bool secret);

/// The keys whose values differ in `now` and take effect at a restart only.
std::vector<std::string> unchangeable(const Config& before, const Config& now);

/// "127.0.0.1:29400", "[::1]:29400".
std::string to_string(const ListenAt& at);
std::string dlaunchd_help();

}  // namespace dlaunch::rendezvous
