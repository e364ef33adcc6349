#pragma once

#include "runtime/store/c10d/decoder.hpp"

#include <string>
#include <vector>

/// Conversations with the c10d front, written as text. A line is one of
///
///     # a remark
///     open 1 c             client 1 connects and, in dialect c, says hello
///     1 > wait /a /b       client 1 asks; operations as in c10d::Op, '' is the empty string
///     1 < ready            all that client 1 has heard since it was last looked at
///     hang-up 1            client 1's connection ends
///
/// where what is heard is a list of: nothing, closed, garbage, u8 N, u32 N, i64 N, text S, and
/// `ready` for u8 0.
namespace dlaunch::c10d_test {

/// Plays a transcript and returns what differed, one sentence a line; empty when nothing did.
/// `slowly`: every byte comes alone.
std::vector<std::string> play(const std::string& transcript, bool slowly);

/// The bytes of a request such as "set /k v".
std::string request_bytes(c10d::Dialect dialect, const std::string& request);

}  // namespace dlaunch::c10d_test
