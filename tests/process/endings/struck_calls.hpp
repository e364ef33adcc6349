#pragma once

#include <dlaunch/dlaunch.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <string>

namespace dlaunch::testing {

/// The calls in which a rank is struck: every kind that there is, by name. All ranks make it with
/// the same number of elements.
using StruckCall = std::function<void(Communicator& comm, std::size_t elements)>;

const std::map<std::string, StruckCall>& struck_calls();

}  // namespace dlaunch::testing
