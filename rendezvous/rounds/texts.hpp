#pragma once

#include "rendezvous/rounds/rounds.hpp"
#include "runtime/base/phrases.hpp"

/// Words that several sentences of the rounds share.
namespace dlaunch::rendezvous {

/// "3 nodes", "2 to 4 nodes".
std::string nodes_text(const JobRules& rules);
/// Orders names by their numbers: node2 before node10.
bool natural_less(std::string_view a, std::string_view b);
/// Texts name so many nodes, and count the others.
constexpr std::size_t names_shown_max = 8;
/// "a, b and c", the first few of them.
std::string list_text(const std::vector<std::string>& names);
/// "5.0 s".
std::string silence_text(Clock::duration silence);
/// "12 s", "10 min": rounded up.
std::string rest_text(Clock::duration left);

}  // namespace dlaunch::rendezvous
