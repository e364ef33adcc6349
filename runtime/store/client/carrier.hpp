#pragma once

#include "runtime/store/protocol/wire.hpp"

#include <string>
#include <string_view>

namespace dlaunch::store {

/// Carries a JobStore's requests to where they are answered. Any thread may call; a waiting call
/// does not hold up others.
class Carrier {
 public:
  virtual ~Carrier() = default;

  struct Reply {
    wire::FrameHeader header;
    Bytes payload;
  };
  /// Waits for the answer, which may be `failed`; `what` begins the messages of errors.
  virtual Reply call(wire::Type type, BytesView payload, Clock::time_point deadline,
                     const std::string& what) = 0;
  /// A watch, which is answered again and again: its number, for next_change.
  virtual std::uint64_t subscribe(std::string_view key) = 0;
  virtual KeyChange next_change(std::uint64_t subscription, Clock::time_point deadline,
                                const std::string& what) = 0;

  /// Throws Error{misuse} in a forked child, where a thread of the parent's may hold any lock for
  /// ever.
  virtual void require_ours() const = 0;
  /// For messages: "the agent", "rank 0's store at h:p".
  virtual const std::string& peer() const = 0;
  /// How long a call without a deadline waits.
  virtual Clock::duration patience() const = 0;
  /// Whether the other end goes on without this process, so that a lease means something.
  virtual bool outlives_us() const = 0;
};

}  // namespace dlaunch::store
