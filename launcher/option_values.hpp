#pragma once

#include "launcher/options.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The values options take, read from text. Each reader says in a sentence what is wrong instead;
/// the caller puts the option's name before it.
namespace dlaunch::launcher {

/// What is wrong with a value: "4x is not a whole number".
struct Complaint {
  std::string sentence;
};

template <class T>
using Read = std::variant<T, Complaint>;

Read<long> read_integer(std::string_view text, long least, long most);
/// "1", "true", "yes", "on" and their opposites.
Read<bool> read_flag(std::string_view text);
/// "3" or "0:1,1:2".
Read<StreamsByRank> read_streams(std::string_view text);
/// "0,2,5"; empty text means none.
Read<std::vector<int>> read_ranks(std::string_view text);
/// "SIGTERM,SIGUSR1": names with or without SIG, none that cannot be caught.
Read<std::vector<int>> read_signals(std::string_view text);
/// "key=value,key=value"; empty text means none.
Read<std::map<std::string, std::string>> read_pairs(std::string_view text);
/// "2", "1:4".
struct NodesAsked {
  long least = 1;
  long most = 1;
};
Read<NodesAsked> read_nodes(std::string_view text);

/// The host of "host", "host:port", "[::1]:port" or "::1"; a port that is no port is a complaint.
Read<std::string> host_of_endpoint(std::string_view text);
bool is_loopback_name(std::string_view host);

std::vector<std::string_view> split(std::string_view text, char separator);
/// How many letters must be added, dropped, changed or swapped to make `a` of `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace dlaunch::launcher
