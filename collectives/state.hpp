#pragma once

#include "collectives/call.hpp"
#include "runtime/world/membership.hpp"

#include <dlaunch/communicator.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace dlaunch {

/// A started call. A collective is a body that runs once; a message is posted at once.
struct WorkState {
  std::shared_ptr<Communicator::State> owner;
  std::function<void(Communicator&)> body;  ///< Collectives.
  bool finished = false;
  std::exception_ptr error;

  // Messages.
  transport::Fingerprint fingerprint;
  Options options;
  int peer = any_source;
  std::optional<transport::Receive> receive;
  std::optional<transport::Outgoing> outgoing;
  std::vector<std::byte> packed;  ///< Strided data on its way.
  TensorView unpack_to;

  ~WorkState();
  void wait();
  bool test();
  void cancel(const Error& why);

 private:
  bool arrived() const;
  void settle();
};

struct Communicator::State : std::enable_shared_from_this<Communicator::State> {
  Group group;
  std::shared_ptr<transport::Links> mesh;
  std::shared_ptr<Membership> membership;
  Clock::duration timeout = std::chrono::minutes(5);
  std::uint64_t sequence = 0;
  std::array<transport::Fingerprint, 16> past{};  ///< The last collectives, in any order.
  std::optional<CallError> error;                 ///< The first one; it sticks.
  std::atomic<bool> aborted{false};
  std::map<std::vector<int>, std::uint64_t> member_groups;  ///< How often each was made.
  std::deque<std::shared_ptr<WorkState>> started;           ///< Collectives not yet run, in order.
  std::vector<WorkState*> messages;                         ///< Started and not yet complete.

  using Body = std::function<void(Call&)>;
  /// A collective: runs what was started before, then `body`; a failure is told to the others and
  /// sticks.
  void collective(transport::Fingerprint fingerprint, const Options& options, const Body& body);
  /// A message call; `peer` and `tag` for messages to the user.
  void message(const transport::Fingerprint& fingerprint, const Options& options, int peer,
               const Body& body);
  /// Appends a collective that runs later.
  Work start(std::function<void(Communicator&)> body);
  /// Runs started collectives up to and including `last`; null: all.
  void run_started(const WorkState* last);
  /// Throws the first error again, if there was one.
  void throw_if_broken() const;
  Clock::duration timeout_of(const Options& options) const;
  std::shared_ptr<State> child(Group child_group) const;

 private:
  void run_body(WorkState& work);
  void run(Call& call, const Body& body);
  void fail(Call& call, const Error& error);
};

}  // namespace dlaunch
