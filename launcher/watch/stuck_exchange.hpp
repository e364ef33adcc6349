#pragma once

#include "launcher/watch/stuck_watch.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What agents tell each other of calls that are stuck, as text; bounded in size.
namespace dlaunch::launcher {

std::string waits_text(std::vector<CallWait> waits);
/// Empty where it cannot be read.
std::vector<CallWait> read_waits(std::string_view text);

std::string wait_text(const CallWait& wait);
std::optional<CallWait> read_wait(std::string_view text);

/// The document of what some ranks do.
std::string doing_document(const wire::Doing& doing);
void add_doing(wire::Doing& doing, std::string_view text);

/// One node's part of a stuck call, without the call itself.
std::string part_text(const StuckCall& part);
/// False where it cannot be read.
bool add_part(StuckCall& stuck, std::string_view text);

}  // namespace dlaunch::launcher
