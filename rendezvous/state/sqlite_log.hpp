#pragma once

#include <string>

namespace dlaunch::rendezvous::sqlite {

/// What is wrong with the write-ahead log at this path, for a sentence; empty where nothing is, or
/// there is none. SQLite does not tell: it drops everything behind the first bad frame. What a loss
/// of power may leave is not wrong. Throws Failure where it cannot be read.
std::string damage_of_log(const std::string& path);

}  // namespace dlaunch::rendezvous::sqlite
