#pragma once

#include "runtime/base/phrases.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Values that people write on command lines and into configuration files, read from text. Each
/// reader says in a sentence what is wrong instead; the caller puts the name before it. Pure.
namespace dlaunch {

/// The problem of a value: "4x is not a whole number".
struct Complaint {
  std::string sentence;
};

template <class T>
using Read = std::variant<T, Complaint>;

Read<long> read_integer(std::string_view text, long least, long most);
/// "1", "true", "yes", "on" and their opposites.
Read<bool> read_flag(std::string_view text);
/// "2m", "500ms", "30" (seconds), "0.5", "1h"; nullopt for anything else, negative or beyond a
/// year.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);
Read<std::chrono::milliseconds> read_duration(std::string_view text);

/// "host", "host:port", "[::1]:port" or "::1".
struct EndpointAsked {
  std::string host;
  std::optional<std::uint16_t> port;
};
Read<EndpointAsked> read_endpoint(std::string_view text);
/// The port at which nodes meet where none is given, torchrun's: a literal, since tables of options
/// and examples contain it.
#define DLAUNCH_MEETING_PORT "29400"
/// Refuses a text that can be neither a host's name nor an address: "http://head", "head:1", "a b".
std::optional<Complaint> check_host(std::string_view host);
/// "localhost", "127.0.0.1", "::1": never reached from another host, whatever a resolver says.
bool is_loopback_name(std::string_view host);

/// A job's id, which becomes part of paths and of socket names.
Read<std::string> read_job_id(std::string_view text);

std::vector<std::string_view> split(std::string_view text, char separator);
/// The word that was probably meant, of those that differ in a few letters; empty where none is
/// near. Dashes and underscores are alike.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);
/// How many letters must be added, dropped, changed or swapped to make `a` of `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace dlaunch
