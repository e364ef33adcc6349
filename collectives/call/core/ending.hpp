#pragma once

#include "collectives/call/core/rooted_window.hpp"
#include "collectives/transport/message/message.hpp"
#include "collectives/transport/message/wait_chain.hpp"
#include "runtime/base/doing.hpp"

#include <dlaunch/communicator.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// The reasons for which a call ends before its wait is satisfied. Plain values: first the facts
/// that the wait knew, then, marked "Found out", those that were found before the call gave up.
/// Ranks are those of the world.
namespace dlaunch::ending {

using transport::FailureNotice;
using transport::Fingerprint;
using transport::MadeCall;

/// This rank ended the communicator.
struct Aborted {
  CallSite site = {"", 0, ""};
};

/// Another rank told of its failure, which breaks the communicator.
struct Told {
  FailureNotice notice;
  std::optional<Fingerprint> mine = std::nullopt;  ///< Found out: this rank's call in dispute.
};

/// Another rank told that its arguments of this very call were wrong.
struct WrongArguments {
  FailureNotice notice;
  std::optional<Fingerprint> mine = std::nullopt;  ///< Found out: this rank's call in dispute.
};

/// A rank's arguments of this call were wrong, and it did not say what was wrong with them.
struct Refused {
  int rank = -1;
};

/// A message that has come, and is not the one that a receive or a probe waits for.
struct Unwanted {
  int from = -1;
  transport::Header sent;
};

/// A rank is gone.
struct Lost {
  int rank = -1;
  std::string cause;
  std::string host = {};
  std::optional<FailureNotice> wrong = std::nullopt;  ///< Arguments that were wrong before.
  std::optional<Unwanted> unwanted = std::nullopt;    ///< Found out.
};

/// A message is not what its receiver expects.
struct MessageDiffers {
  transport::Header sent;
  int from = -1;
  Fingerprint expected;
  std::vector<std::string> places = {};  ///< Found out: from where in the program it was sent.
};

/// The same of messages that went by a device.
struct DeviceMessageDiffers {
  int from = -1;
  Fingerprint sent, expected;
};

/// A message has more elements than its receive has room for. The message stays.
struct TooLong {
  transport::Header sent;
  int from = -1;
  std::uint64_t room = 0;  ///< Elements.
};

/// Ranks wait for each other.
struct Deadlock {
  transport::WaitChain ring;
};

/// Another rank makes another call.
struct CallDiffers {
  int rank = -1;
  std::optional<Fingerprint> theirs;  ///< nullopt: no record of it is left.
  struct Sizes {
    std::uint64_t theirs = 0, ours = 0;
  };
  std::optional<Sizes> sizes = std::nullopt;          ///< Bytes that were sent and expected.
  std::optional<FailureNotice> wrong = std::nullopt;  ///< Arguments that were wrong before.

  // Found out.
  std::optional<Fingerprint> mine = std::nullopt;  ///< This rank's call of that number.
  /// The same call with its place, if it is over.
  std::optional<MadeCall> made_here = std::nullopt;
  std::optional<MadeCall> made_there = std::nullopt;  ///< `theirs`, with its place.
  /// If that rank is further on: its call of this one's number.
  std::optional<MadeCall> made_then = std::nullopt;
  /// Both calls' arguments, if nothing else differs.
  struct Arguments {
    std::string here, there;         ///< Argument::text() of both; empty where they are not known.
    std::uint64_t table_digest = 0;  ///< The table of algorithms that this rank goes by.
    std::string table;
  };
  std::optional<Arguments> arguments = std::nullopt;
};

/// Another rank has made another call with a root, and both have gone on since.
struct WindowDiffers {
  int rank = -1;
  RootedWindow::Difference calls;
  // Found out.
  std::optional<MadeCall> made_here = std::nullopt, made_there = std::nullopt;
};

/// The facts about a rank that may be absent.
struct Sight {
  int rank = -1;
  std::optional<transport::Doing> answer = std::nullopt;
  /// The header of data it sends that nobody receives.
  std::optional<transport::Header> unreceived = std::nullopt;
  std::optional<std::string> lost = std::nullopt;    ///< The cause.
  std::optional<SeenDoing> recorded = std::nullopt;  ///< By its own record, on this node.
  bool lacks_communicator = false;                   ///< By the same: it has not made this one.
  std::optional<SeenDoing> seen = std::nullopt;      ///< By its agent, on another.
  std::optional<Fingerprint> last_heard = std::nullopt;
};

/// The deadline has passed.
struct TimedOut {
  bool for_device = false;      ///< It waited for work of devices.
  int whom = -1;                ///< The rank whose data it waited for; -1: none in particular.
  std::vector<int> asked = {};  ///< Ranks that may be absent.
  // Found out.
  std::vector<Sight> ranks = {};  ///< The activity of these ranks.
  std::uint64_t recorded_as = 0;  ///< The communicator's number in records.
  std::string shortage = {};      ///< Why connections to this rank wait.
  std::optional<Unwanted> unwanted = std::nullopt;
};

}  // namespace dlaunch::ending

namespace dlaunch {

using Ending = std::variant<ending::Aborted, ending::Told, ending::WrongArguments, ending::Refused,
                            ending::Lost, ending::MessageDiffers, ending::TooLong,
                            ending::DeviceMessageDiffers, ending::Deadlock, ending::CallDiffers,
                            ending::WindowDiffers, ending::TimedOut>;

}  // namespace dlaunch
