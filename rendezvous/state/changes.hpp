#pragma once

#include "runtime/store/protocol/wire.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

/// The changes that are recorded, each a value: made on the loop that serves, written by another
/// thread.
namespace dlaunch::rendezvous::change {

/// The number of a namespace in the state file; never used again there.
using Space = std::int64_t;

struct JobOpened {
  std::string job;
  std::uint64_t incarnation = 0;
};
struct EpochClosed {
  std::string job;
  std::uint64_t epoch = 0;
};
struct JobFinished {
  std::string job;
  int exit_code = 0;
};
struct JobForgotten {
  std::string job;
};
/// An operator's drain; of all jobs to come for an empty name. Nullopt: it is over.
struct Drained {
  std::string job;
  std::optional<std::string> why;
};
struct SpaceOpened {
  Space space = 0;
  std::string job;
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 0;
};
struct SpaceDropped {
  Space space = 0;
};
struct Stored {
  Space space = 0;
  std::string key;
  Bytes value;
  std::uint64_t owner = 0;
  std::chrono::milliseconds lease{};
};
struct Erased {
  Space space = 0;
  std::string key;
};
struct Pushed {
  Space space = 0;
  std::string queue;
  Bytes value;
};
struct Popped {
  Space space = 0;
  std::string queue;
};
struct Completed {
  Space space = 0;
  bool gathers = false;
  std::string name;
  std::uint64_t round = 0;
  std::shared_ptr<const Bytes> block;
  std::string too_big;
};
struct Answered {
  Space space = 0;
  std::uint64_t session = 0;
  std::uint64_t number = 0;  ///< The session's answers are counted from 0.
  std::uint64_t request = 0;
  wire::Type type{};
  Bytes payload;
};
struct Forgot {
  Space space = 0;
  std::uint64_t session = 0;
};

}  // namespace dlaunch::rendezvous::change

namespace dlaunch::rendezvous {

using Change = std::variant<change::JobOpened, change::EpochClosed, change::JobFinished,
                            change::JobForgotten, change::Drained, change::SpaceOpened,
                            change::SpaceDropped, change::Stored, change::Erased, change::Pushed,
                            change::Popped, change::Completed, change::Answered, change::Forgot>;

}  // namespace dlaunch::rendezvous
