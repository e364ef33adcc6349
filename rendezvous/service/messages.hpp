#pragma once

#include "rendezvous/lag/rank_calls.hpp"
#include "rendezvous/rounds/rounds.hpp"
#include "runtime/store/protocol/wire.hpp"

/// The messages between an agent and the rendezvous, as frames of the native protocol on the
/// agent's one connection (docs/wire.md). HELLO's session is rounds' Session. All are pushed
/// (request 0) both ways; a sender repeats what the other side may have missed after a reconnect.
/// Sessions do not travel in them: each connection has one.
namespace dlaunch::rendezvous::message {

/// Addresses of one node. Texts have wire::text_bytes_max, frames wire::frame_bytes_max.
constexpr std::size_t addresses_max = 64;
constexpr std::size_t roster_max = 65'536;
/// Runs of cores in one affinity mask.
constexpr std::size_t core_ranges_max = 4096;
/// The limit of one node's calls in one message.
constexpr std::size_t communicators_max = 64, calls_max = 64;

/// Agent: its first message after WELCOME, and again after each reconnect.
struct Join {
  static constexpr wire::Type type{96};
  NodeOffer offer;
  JobRules rules;
  std::optional<Holding> holding;
  std::string version;  ///< Version of the program, for messages.
};
/// Agent: it goes on purpose.
struct Leave : rendezvous::Leave {
  static constexpr wire::Type type{97};
};
/// Both ways, every second while nothing else is said; the rendezvous echoes it.
struct Heartbeat {
  static constexpr wire::Type type{98};
};
/// The times in facts travel as ages, `told` to `heard`: clocks differ.
struct WorkerFailed {
  static constexpr wire::Type type{99};
  std::uint64_t epoch = 0;
  Fact fact;
};
struct WorkerLeft : rendezvous::WorkerLeft {
  static constexpr wire::Type type{107};
};
struct WorkersEnded {
  static constexpr wire::Type type{100};
  std::uint64_t epoch = 0;
  rendezvous::WorkersEnded::Outcome outcome{};
  std::int32_t exit_code = 0;
  std::string sentence;
  std::vector<Fact> facts;
  struct Range {
    std::int32_t first = 0;
    std::int32_t count = 1;
  };
  std::vector<Range> left;
  std::vector<RankDetails> details;
};
/// Agent: before WorkersEnded, where the workers ended by themselves; several for many
/// communicators.
struct CallsMade : rendezvous::CallsMade {
  static constexpr wire::Type type{108};
};

/// Agent, to a dlaunchd: what its ranks do now, for people to look at. Sent after changes; each
/// replaces the one before. Starts with the first rank; ranks for which there is no room are left
/// out.
struct CallsNow {
  static constexpr wire::Type type{116};
  std::uint64_t epoch = 0;
  std::vector<RankCalls> ranks;
};

/// Agent, to a rendezvous that a node hosts: it has heard of its place in the epoch, and listens at
/// this address, ready to host the job in place of that node. Empty: it does not listen.
struct Standby {
  static constexpr wire::Type type{114};
  std::uint64_t epoch = 0;
  std::string address;
};

// ---- What agents ask each other. The rendezvous forwards it without reading it. ----

/// The limits of a question's and an answer's length, and of a node's open questions.
constexpr std::size_t question_bytes_max = 64u << 10, answer_bytes_max = 8u << 20;
constexpr std::size_t questions_max = 8;

/// Agent: asks the other nodes of its epoch. Said again, under the same number, after a reconnect.
struct Ask {
  static constexpr wire::Type type{109};
  static constexpr std::int32_t all_nodes = -1;
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;       ///< The agent's own.
  std::int32_t node = all_nodes;  ///< The rank of the one that is asked.
  Clock::duration patience{};
  Bytes question;
};
/// Rendezvous: another node asks this one.
struct Asked {
  static constexpr wire::Type type{110};
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;  ///< The rendezvous' own.
  Bytes question;
};
/// Agent: its answer.
struct Answer {
  static constexpr wire::Type type{111};
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;  ///< That of Asked.
  Bytes answer;
};
/// Rendezvous: a node's answer, sent to the node that asked.
struct Answered {
  static constexpr wire::Type type{112};
  static constexpr std::int32_t no_more = -1;
  std::uint64_t number = 0;  ///< That of Ask.
  /// The rank of the answering node. no_more: the remaining nodes will not answer.
  std::int32_t node = no_more;
  Bytes answer = {};
};
/// Agent: it has read an answer; more may come.
struct AnswerTaken {
  static constexpr wire::Type type{113};
  std::uint64_t number = 0;  ///< That of Ask.
};

/// Rendezvous: places the node in a round.
struct Admitted : rendezvous::Admitted {
  static constexpr wire::Type type{101};
};
struct Refused : Refuse {
  static constexpr wire::Type type{102};
};
struct Stopped : Stop {
  static constexpr wire::Type type{103};
};
struct RanksLost : rendezvous::RanksLost {
  static constexpr wire::Type type{104};
};
struct Standing : rendezvous::Standing {
  static constexpr wire::Type type{105};
};
struct Finished : Finish {
  static constexpr wire::Type type{106};
};

/// Rendezvous on a node: to all, when it changes.
struct Succession : rendezvous::Succession {
  static constexpr wire::Type type{115};
};

/// The limits of ranges of ranks that one node reports as left, and of lines of one rank's stderr.
constexpr std::size_t ranges_max = 4096, lines_max = 20;
/// Bytes of one such line.
constexpr std::size_t line_bytes_max = 512;

WorkerFailed told(const rendezvous::WorkerFailed& how, Clock::time_point now);
rendezvous::WorkerFailed heard(const WorkerFailed& how, Session from, Clock::time_point now);
/// If there are too many facts, those that blame others are left out.
WorkersEnded told(const rendezvous::WorkersEnded& how, Clock::time_point now);
rendezvous::WorkersEnded heard(const WorkersEnded& how, Session from, Clock::time_point now);

/// As wire::encode and wire::decode. Durations travel as milliseconds, rounded up.
template <class Message>
void encode(Bytes& out, const Message& message);
template <class Message>
std::optional<Message> decode(BytesView payload);

}  // namespace dlaunch::rendezvous::message
