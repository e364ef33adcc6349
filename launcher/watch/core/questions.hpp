#pragma once

#include "launcher/report/snapshot.hpp"
#include "launcher/watch/core/progress.hpp"
#include "launcher/watch/core/stuck_watch.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// The questions and answers between the agents of a job, and their encoding, which the rendezvous
/// forwards unread (docs/wire.md).
namespace dlaunch::launcher {

/// What do your ranks do? Answered with a NodeSnapshot.
struct AskSnapshot {
  enum class Detail : std::uint8_t { status, flight };
  Detail detail = Detail::status;  ///< With flight: the ranks' last calls, too.
};
/// In which calls do your ranks wait? Answered with CallWaits.
struct AskWaits {};
/// What have your ranks to do with this call? Answered with a StuckPart.
struct AskPart {
  CallWait wait;
};
/// What do these ranks do? Answered with a Doing, for those that live there.
struct AskDoing {
  std::vector<std::int32_t> ranks;
};
/// Node rank 0 is to look for calls that are stuck: one of another node's is. Answered at once.
struct AskLook {};
/// How long have your ranks shown no progress? Answered with a NodeProgress.
struct AskProgress {};
/// The job has stalled, as this says: end your ranks. Answered at once.
struct AskEnd {
  std::string sentence;
};
/// A worker needs so long from now until the job's deadline. Answered at once.
struct AskTime {
  Clock::duration time{};
};
using Question =
    std::variant<AskSnapshot, AskWaits, AskPart, AskDoing, AskLook, AskProgress, AskEnd, AskTime>;

struct CallWaits {
  std::vector<CallWait> waits;
};
struct Looking {};
struct Ending {};
struct Waiting {};
using Answer = std::variant<NodeSnapshot, CallWaits, StuckPart, wire::Doing, Looking, NodeProgress,
                            Ending, Waiting>;
/// By node rank. A node that did not answer in time, or has left, is missing.
using Answers = std::map<int, Answer>;

Bytes encode(const Question& question);
Bytes encode(const Answer& answer);
Bytes encode(const JobSnapshot& job);

/// Decodes bytes that another process has encoded; nullopt where they are not exactly one such
/// value. Takes no more memory than their length justifies.
std::optional<Question> decode_question(BytesView bytes);
std::optional<Answer> decode_answer(BytesView bytes);
std::optional<JobSnapshot> decode_snapshot(BytesView bytes);

}  // namespace dlaunch::launcher
