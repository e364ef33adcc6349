#pragma once

#include "launcher/report/job_list.hpp"
#include "runtime/base/bytes.hpp"

#include <cstdint>
#include <optional>

/// What a launcher says of itself to `dlaunch ps` and `dlaunch stop`, as bytes.
namespace dlaunch::launcher {

/// A launcher's last word.
struct JobFarewell {
  std::int32_t exit_code = 0;
};

Bytes encode(const JobEntry& entry);
Bytes encode(const JobFarewell& farewell);
/// nullopt where the bytes are not exactly one such value of this version of dlaunch.
std::optional<JobEntry> decode_entry(BytesView bytes);
std::optional<JobFarewell> decode_farewell(BytesView bytes);

}  // namespace dlaunch::launcher
