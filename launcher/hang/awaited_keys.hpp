#pragma once

#include "launcher/watch/job_entry.hpp"

#include <string>
#include <string_view>

/// Sentences about ranks that wait in PyTorch's store. Pure.
namespace dlaunch::launcher {

/// The rank whose turn it is to set a key, if that is one of PyTorch's own and its name says so:
/// "rank 2 sets it when it joins the group (gloo)". Empty for other keys.
std::string setter_of(std::string_view key);

/// A line for each key, or set of keys, that somebody waits for, with all those who do:
///
///   'never', by rank 1 for 40 s
///
/// The text is empty where nobody waits.
std::string awaited_text(const JobStoreWaits& waits);

}  // namespace dlaunch::launcher
