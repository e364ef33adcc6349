#pragma once

#include "rendezvous/daemon/log.hpp"
#include "rendezvous/service/service.hpp"
#include "runtime/base/text/options.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <sys/types.h>

namespace dlaunch::rendezvous {

/// The address where a socket is to listen; the host as it was written, without brackets.
struct ListenAt {
  std::string host;
  std::uint16_t port = 0;
  std::string path = {};  ///< Path of a unix socket, which has neither host nor port.

  bool operator==(const ListenAt&) const = default;
};

const OptionTable& dlaunchd_options();

/// The settings of dlaunchd: the command line over the file over the defaults. Each field is the
/// key of the same name.
struct Config {
  std::vector<ListenAt> listen;
  std::optional<ListenAt> http;  ///< Unset: off.
  std::string http_token_file;   ///< Empty: none.
  std::string secret_file, tool_secret_file, read_only_secret_file;
  bool trust_loopback = false;
  mode_t socket_mode = 0;
  std::string socket_group;  ///< Empty: the daemon's.
  std::string state;
  ServiceRules rules;
  std::optional<std::size_t> memory_max;  ///< Unset: by what the system allows.
  std::chrono::milliseconds drain_timeout{};
  LogLine::Level log_level = LogLine::Level::info;
  Log::Form log_format = Log::Form::text;
  std::string config;  ///< The file it was read from; empty for none.
  bool check = false;
  std::vector<std::string> words;  ///< The words that are no options.

  GivenOptions given{dlaunchd_options()};  ///< Each value as it was written, and its origin.
};

/// A pure function of the arguments (without argv[0]) and the files. Checks values one by one and
/// against each other, save for what only the system knows.
std::variant<Config, EarlyExit> read_config(std::span<const std::string> arguments,
                                            const FileReader& read_file,
                                            std::size_t words_most = 0);

/// Why this configuration may not be served: it listens beyond loopback and there is no secret.
/// Nullopt: it may.
std::optional<std::string> exposure(const Config& config, bool secret);

/// Why these addresses cannot all be listened on: two of them are one. Nullopt: they can. Names are
/// not looked up.
std::optional<std::string> doubled_address(const Config& config);

/// The keys whose values are written otherwise in `now` and take effect at a restart only.
std::vector<std::string> unchangeable(const Config& before, const Config& now);
/// `before` with what a reload changes as it is in `now`.
Config reloaded(const Config& before, const Config& now);

/// "127.0.0.1:29400", "[::1]:29400".
std::string to_string(const ListenAt& at);

}  // namespace dlaunch::rendezvous
