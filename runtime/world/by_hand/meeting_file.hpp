#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// How the ranks of file:// find rank 0: it writes one small file that all of them see. A file of
/// an earlier run is never trusted: it names its writer and a random number that only the store of
/// that very run answers to.
namespace dlaunch {

struct MeetingRecord {
  std::string host;  ///< Rank 0 listens there.
  int port = 0;
  std::string nonce;     ///< The job id of the store there.
  std::string hostname;  ///< Rank 0's.
  std::int64_t pid = 0;
  std::string machine;        ///< Boot id and pid namespace in which `pid` is valid.
  std::uint64_t started = 0;  ///< The start time of `pid`, which tells it from a later one.
  bool operator==(const MeetingRecord&) const = default;
};

/// Pure, both ways. Nullopt where the text is not exactly one meeting.
std::string to_text(const MeetingRecord& meeting);
std::optional<MeetingRecord> meeting_from(std::string_view text);

/// This process's part of a meeting: hostname, pid, machine, start time and a fresh nonce.
MeetingRecord meeting_of_this_process();
/// Whether the writer is known to be gone; unknown (another machine) is false.
bool is_known_gone(const MeetingRecord& meeting);

/// Nullopt where there is no file, or an empty one. Throws Error{misuse} when it is there and
/// cannot be read, or is no meeting file at all (rank 0 must not overwrite something else).
std::optional<MeetingRecord> read_meeting(const std::string& path);
/// Writes the file in one step, so that nobody ever reads half of it. Throws Error{refused} when a
/// living process has written it: two jobs, or two ranks 0, use one file.
void write_meeting(const std::string& path, const MeetingRecord& meeting);
/// Removes the file if it is still this meeting's.
void remove_meeting(const std::string& path, const MeetingRecord& meeting) noexcept;

}  // namespace dlaunch
