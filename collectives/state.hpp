#pragma once

#include "collectives/call.hpp"
#include "collectives/form_team.hpp"
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

/// Hidden: else all of it would be exported with the class it is part of.
struct __attribute__((visibility("hidden"))) Communicator::State
    : std::enable_shared_from_this<Communicator::State> {
  Group group;
  std::shared_ptr<transport::Links> mesh;
  std::shared_ptr<Membership> membership;
  Clock::duration timeout = std::chrono::minutes(5);
  std::uint64_t sequence = 0;
  bool team_sought = false;
  std::unique_ptr<transport::Team> team;
  std::array<transport::Fingerprint, 16> past{};  ///< The last collectives, in any order.
  std::optional<CallError> error;                 ///< The first one; it sticks.
  std::atomic<bool> aborted{false};
  std::map<std::vector<int>, std::uint64_t> member_groups;  ///< How often each was made.
  std::deque<std::shared_ptr<WorkState>> started;           ///< Collectives not yet run, in order.
  std::vector<WorkState*> messages;                         ///< Started and not yet complete.

  /// A collective: runs what was started before, then `body(Call&)`; a failure is told to the
  /// others and sticks.
  template <class Body>
  void collective(transport::Fingerprint fingerprint, const Options& options, const Body& body) {
    if (!started.empty()) run_started(nullptr);
    // Counted before anything can fail, so that the ranks' numbers stay equal.
    fingerprint.sequence = ++sequence;
    throw_if_broken();
    Call call({*mesh, group, past, aborted, timeout_of(options), options.site}, fingerprint);
    past[sequence % past.size()] = fingerprint;
    run(call, [&](Call& running) {
      if (!team_sought) find_team(running);
      if (team) running.use(*team);
      body(running);
    });
  }
  /// A message call; `peer` and `tag` for messages to the user.
  template <class Body>
  void message(const transport::Fingerprint& fingerprint, const Options& options, int peer,
               const Body& body) {
    throw_if_broken();
    Call call({*mesh, group, past, aborted, timeout_of(options), options.site, peer, options.tag},
              fingerprint);
    run(call, body);
  }
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
  template <class Body>
  void run(Call& call, const Body& body) {
    try {
      call.check_entry();
      body(call);
    } catch (...) {
      fail(call);
      throw;
    }
  }
  /// The exception that is being handled ended the call.
  void fail(Call& call);
  void fail(Call& call, const Error& error);
  void find_team(Call& call);
};

}  // namespace dlaunch
