#pragma once

#include "collectives/call/agreement.hpp"
#include "collectives/call/call.hpp"
#include "collectives/call/checks.hpp"
#include "collectives/call/collective_call.hpp"
#include "collectives/call/core/rooted_window.hpp"
#include "collectives/call/form_shm_group.hpp"
#include "collectives/communicator/started_queue.hpp"
#include "collectives/communicator/work_state.hpp"
#include "collectives/device/device_calls.hpp"
#include "collectives/device/memory.hpp"
#include "collectives/device/plan.hpp"
#include "collectives/transport/progress_thread.hpp"
#include "runtime/base/os/home_process.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/communicator.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <vector>

namespace dlaunch {

class DeviceWork;
class JoinGroup;

/// The error that broke a communicator: the first one, in whichever thread it came.
class FirstError {
 public:
  void set(const CallError& error) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_.emplace(error);
    is_set_ = true;
  }
  bool is_set() const noexcept { return is_set_; }
  void throw_if_set() const {
    if (is_set_) throw *error_;
  }

 private:
  std::mutex mutex_;
  std::optional<CallError> error_;  ///< Never changes again.
  std::atomic<bool> is_set_{false};
};

/// A communicator's place in the flight recorder, as long as it lives.
class FlightPlace {
 public:
  FlightPlace() = default;
  FlightPlace(const FlightPlace&) = delete;
  FlightPlace& operator=(const FlightPlace&) = delete;
  ~FlightPlace() {
    if (flight_) flight_->leave(place_);
  }
  /// Once.
  void take(transport::Links& mesh, const Group& group);
  /// 0: as the launcher likes, less: never.
  void limit_waits(std::chrono::milliseconds stuck_after) noexcept {
    stuck_after_ = stuck_after;
    flight_->limit_waits(place_, stuck_after);
  }
  std::chrono::milliseconds stuck_after() const noexcept { return stuck_after_; }

  [[gnu::always_inline]] Flight::Entry begin(const Flight::Call& call,
                                             const CallSite& site) const noexcept {
    place_.progress->begun.store(call.sequence, std::memory_order_relaxed);
    return {*flight_, place_, call, site.file, site.line};
  }
  void count_rooted(const Flight::Call& call) const noexcept { place_.count_rooted(call); }
  /// Notes that the program hears that its ranks differ in their calls, or that this one's was
  /// wrong.
  void note_heard() const noexcept {
    if (flight_) place_.progress->heard.store(1, std::memory_order_relaxed);
  }
  Flight::Entry begin_agreement(const transport::Fingerprint& call,
                                const CallSite& site) const noexcept {
    return {*flight_, place_, call.record().as(Flight::Kind::aside), site.file, site.line};
  }
  Flight::Entry begin_message(const transport::Fingerprint& call, const MessageOptions& options,
                              int peer, Flight::Kind kind) const noexcept {
    return {*flight_, place_, record_of(call, peer, options.tag, kind), options.site.file,
            options.site.line};
  }
  /// A message that went the short way, and is over.
  [[gnu::always_inline]] void note_message(const transport::Fingerprint& call,
                                           const MessageOptions& options, int peer,
                                           Flight::Kind kind) const noexcept {
    flight_->note(place_, record_of(call, peer, options.tag, kind), options.site.file,
                  options.site.line);
  }

 private:
  std::shared_ptr<Flight> flight_;
  Flight::Place place_;
  std::chrono::milliseconds stuck_after_{0};
};

// The names of messages that are no plain send and recv, for CallContext.
constexpr const char* name_of_send(bool is_synchronous) noexcept {
  return is_synchronous ? "ssend" : nullptr;
}
constexpr const char* name_of_receive(bool up_to) noexcept {
  return up_to ? "recv_up_to" : nullptr;
}

/// Hidden: else all of it would be exported with the class it is part of.
struct __attribute__((visibility("hidden"))) Communicator::State
    : std::enable_shared_from_this<Communicator::State> {
  Group group;
  std::shared_ptr<transport::Links> mesh;
  std::shared_ptr<transport::ProgressThread>
      progress_thread;  ///< The mesh's progress thread; the mesh outlives it.
  FlightPlace flight;
  std::shared_ptr<Membership> membership;
  /// Also for the thread that looks after a device.
  std::atomic<Clock::duration> timeout{std::chrono::minutes(5)};
  std::atomic<std::uint64_t> sequence{0};  ///< The number of the last collective that ran.
  /// The purpose of the program's collectives, packed; 0: its own. Also for completions.
  std::atomic<std::uint32_t> traffic{0};
  std::uint64_t agreements = 0;  ///< Calls of agree and shrink so far.
  /// 1 until the search for the shm group, or the nodes, is over. For any thread.
  std::atomic<std::uint32_t> unsettled{1};
  bool shm_sought = false;
  std::unique_ptr<transport::ShmGroup> shm;
  std::unique_ptr<algorithms::by_node::Nodes> nodes;  ///< Used if there is no shm group.
  std::atomic<bool> goes_by_nodes{false};             ///< The same, for any thread.
  Kept kept;
  RootedWindow window;
  FirstError error;  ///< It sticks.
  Aborted aborted;
  /// The first call for which tell_abort() has told the others.
  std::atomic<std::uint64_t> abort_told_from{~std::uint64_t{0}};
  std::atomic<bool> destroyed{false};
  std::map<std::vector<int>, std::uint64_t> member_groups;  ///< How often each was made.
  std::weak_ptr<JoinGroup> join_group;                      ///< As long as it has joinables.
  std::shared_ptr<StartedQueue> queue = std::make_shared<StartedQueue>();
  class CollectiveWork;
  /// Works of the queue, which are used again when the program has released them.
  std::vector<std::shared_ptr<CollectiveWork>> works;
  std::size_t next_work = 0;  ///< Index of the one that was taken longest ago.
  IntrusiveList<MessageWork, &MessageWork::place> messages;  ///< Started and not yet finished.
  std::unique_ptr<DeviceCalls> device;  ///< From the first call with CUDA buffers on.
  std::shared_ptr<DeviceMemory> device_memory = std::make_shared<DeviceMemory>();
  transport::Activity device_activity;
  std::vector<DeviceWork*> device_works;  ///< Not known to be complete.
  const HomeProcess home;

  /// A collective of this library's: its arguments are checked, then it runs, on its device or
  /// here.
  void run(CollectiveCall&& what);
  /// The same with buffers that lie here, and are used; `op`, which is the call's, is a constant.
  void make(const CollectiveCall& what);
  template <bool is_settled = false>
  void make(transport::Op op, const CollectiveCall& what);
  void make_by(transport::Op op, const CollectiveCall& what);
  template <transport::Op op>
  void make_of(const CollectiveCall& what);
  /// Whether the ranks' nodes are known, and the program's calls have no other purpose.
  bool is_settled() const { return (traffic | unsettled) == 0; }
  /// Like run(), in the background, in its turn.
  Work start(CollectiveCall what);
  /// A work that nobody else has. For the thread that starts.
  std::shared_ptr<CollectiveWork> take_work();
  /// The options with the purpose of the program's collectives.
  transport::Fingerprint marked(transport::Fingerprint call) const {
    call.traffic = traffic;
    return call;
  }
  /// A collective: runs what was started before, then `body(Call&)`; a failure is told to the
  /// others and sticks.
  template <class Body>
  void collective(transport::Fingerprint fingerprint, const Options& options, const Body& body) {
    fingerprint = marked(fingerprint);
    count_and_run(fingerprint, options, body);
  }
  /// The same; `fingerprint` becomes that of the call. `is_settled`: see there. A body that takes
  /// two gets the call's record as well.
  template <bool is_settled = false, class Body>
  [[gnu::always_inline]] void count_and_run(transport::Fingerprint& fingerprint,
                                            const Options& options, const Body& body) {
    Flight::Call record = fingerprint.record();
    check_process();
    LentThread* const lent = queue->finish_all();
    // Counted before anything can fail, so that the ranks' numbers stay equal.
    record.sequence = fingerprint.sequence = sequence.load(std::memory_order_relaxed) + 1;
    sequence.store(fingerprint.sequence, std::memory_order_relaxed);
    throw_if_broken();
    if constexpr (!is_settled) {
      if ((record.traffic | unsettled) != 0) [[unlikely]]
        record = set_apart(fingerprint);
    }
    run_collective<is_settled>(record, fingerprint, options, lent, body);
  }
  /// A collective with a root, in which a rank need not wait for all others: ranks that made others
  /// are found at the window's end at the latest.
  template <class Body>
  [[gnu::always_inline]] void rooted(transport::Fingerprint fingerprint, const Options& options,
                                     const Body& body) {
    count_and_run(
        fingerprint,
        options, [&](Call & call, const Flight::Call& record) __attribute__((always_inline)) {
          flight.count_rooted(record);
          // Members of an shm group are never further than a step from each other.
          if (!shm) window.add(record);
          body(call);
          if (!shm && window.is_full()) [[unlikely]]
            call.confirm(window);
        });
  }
  /// A message call; `peer`, the options' tag and `name` (see CallContext) for messages to the
  /// user.
  template <class Body>
  void message(const transport::Fingerprint& fingerprint, const MessageOptions& options, int peer,
               Flight::Kind kind, const char* name, const Body& body) {
    check_process();
    throw_if_broken();
    Flight::Entry entry = flight.begin_message(fingerprint, options, peer, kind);
    Call::Setting setting{*mesh,        group,  kept, aborted,    timeout_of(options),
                          options.site, &entry, peer, options.tag};
    setting.has_own_timeout = options.timeout > Clock::duration::zero();
    setting.name = name;
    Call call(setting, fingerprint);
    attempt(call, [&](Call& running) {
      check_timeout(running, options.timeout);
      body(running);
    });
    entry.done();
  }
  /// With CUDA buffers: put on the stream, and waited for where that is the default one.
  void run_on_device(const device::Request& request, const Options& options);
  /// A barrier of the streams. Throws Error{misuse} where there is no device yet.
  device::Request barrier_on_device();
  /// Put on the stream.
  Work start_on_device(const device::Request& request, const Options& options);
  std::shared_ptr<DeviceWork> start_batch_on_device(std::span<const Transfer> transfers,
                                                    const Options& options);
  /// The device's part of making groups, in which all ranks take part; null for colour -1, and if
  /// the device was not used.
  std::unique_ptr<DeviceCalls> split_device(Call& call, int color, int key);
  /// The survivors' part of shrink(), on the new communicator: its ranks get a shrunk NCCL group of
  /// the parent's, all or none.
  void shrink_device(State& parent, std::span<const int> survivors, const Options& options);
  void wait_on_device(const transport::Fingerprint& fingerprint, const Options& options,
                      device::Event& mark);
  /// Agrees on the living ranks' flags, even if the communicator is broken or revoked.
  Agreement agree(transport::Op op, std::uint32_t flags, const Options& options);
  /// The options as they are now: they do not change while the call waits for its turn.
  Options settled(const Options& options) const;
  /// Waits until it `holds`, which is asked under the mesh's lock; false at `until`, and when
  /// nothing can be moved any more. Moves messages meanwhile, and fails no call.
  bool watch(const std::function<bool()>& holds, Clock::time_point until,
             Clock::duration look_interval);
  void finish_begun_messages();
  /// The communicator is destroyed: calls under way end with Errc::aborted, and the thread ends.
  void end();
  /// Breaks the communicator between two calls: the other ranks are told why, and wait no longer.
  /// Does nothing where it is broken already.
  void give_up(const Error& why) noexcept;
  /// Tells the other ranks that this one has called abort(), which may be in no call. For any
  /// thread.
  void tell_abort() noexcept;
  /// Whether this is a forked child: the memory and the connections are the parent's, its threads
  /// do not exist here, and their locks stay locked.
  bool is_forked() const noexcept { return !home.is_here(); }
  /// Throws Error{misuse} in a forked child.
  void check_process() const {
    if (is_forked()) [[unlikely]]
      refuse_process();
  }
  [[noreturn]] static void refuse_process();
  /// Throws the first error again, if there was one.
  void throw_if_broken() const { error.throw_if_set(); }
  /// The timeout: the communicator's own if the options have none; an invalid one is kept, so that
  /// the call refuses it.
  template <class AnyOptions>
  Clock::duration timeout_of(const AnyOptions& options) const {
    if (options.timeout > Clock::duration::zero()) return options.timeout;
    return timeout.load(std::memory_order_relaxed);
  }
  /// `least_peer`: any_source where that is a peer, too.
  bool is_plain(const ConstTensorView& view, int peer, const MessageOptions& options,
                int least_peer = 0) const;
  /// A plain message that leaves at once, whole, and is recorded as made so.
  bool send_now(const ConstTensorView& data, int to, const MessageOptions& options,
                Flight::Kind kind);
  /// The receive for a plain message.
  void describe(transport::Receive& receive, const TensorView& data, int from,
                const MessageOptions& options, bool up_to) const;
  /// What a receive from `from`, a rank of the communicator or any, has received.
  Received received_by(const transport::Receive& receive, int from) const {
    const int source = from == any_source ? group.rank_of(receive.source) : from;
    return {source, receive.header.tag, receive.header.dtype, receive.header.count};
  }
  /// A receive into host memory, of exactly so many elements, or of fewer, too.
  Received receive(const TensorView& data, int from, const MessageOptions& options, bool up_to);
  Work start_receive(const TensorView& data, int from, const MessageOptions& options, bool up_to);
  /// The short form for a plain message. Under the mesh's lock; empty: nothing is done, and the
  /// long form has to do it.
  Work start_plain_receive(const TensorView& data, int from, const MessageOptions& options,
                           bool up_to);
  /// A message that is not plain, or needs confirmation; a strided one is packed.
  Work start_send(const ConstTensorView& data, int to, const MessageOptions& options,
                  bool is_synchronous);
  void wait_to_send(const ConstTensorView& data, int to, const MessageOptions& options,
                    bool is_synchronous);
  /// Throws what the first wrong one would, before any of them has begun.
  void check_transfers(std::span<const Transfer> transfers, const Options& options);
  /// Looks for a message until one is found, or once; `finds` is asked under the mesh's lock.
  void find(int from, const MessageOptions& options, const std::function<bool(int source)>& finds,
            bool waits, const char* name = nullptr);
  Work start_probe(int from, const MessageOptions& options);
  std::optional<Received> find_message(int from, const MessageOptions& options, bool waits);
  Message match_message(int from, const MessageOptions& options, bool waits);
  std::shared_ptr<State> child(Group child_group,
                               std::unique_ptr<DeviceCalls> child_device = nullptr) const;

 private:
  /// Gives the first collectives, and those that say what they are for, an argument of their own.
  [[gnu::cold]] Flight::Call set_apart(transport::Fingerprint& fingerprint) const;
  template <bool is_settled, class Body>
  [[gnu::always_inline]] void run_collective(const Flight::Call& record,
                                             const transport::Fingerprint& fingerprint,
                                             const Options& options, LentThread* lent,
                                             const Body& body) {
    Flight::Entry entry = flight.begin(record, options.site);
    const Call::Setting setting{
        *mesh,        group,  kept,       aborted, timeout_of(options),
        options.site, &entry, any_source, 0,       device ? &device->history() : nullptr,
        lent};
    Call call(setting, fingerprint);
    if (device) device->history().record(fingerprint);
    attempt(
        call, [&](Call & running) __attribute__((always_inline)) {
          if constexpr (!is_settled) {
            if (unsettled != 0) [[unlikely]]
              find_shm_groups(running);
          }
          if (shm) running.use(*shm, record);
          if (nodes) running.use(*nodes);
          check_timeout(running, options.timeout);
          if constexpr (std::is_invocable_v<const Body&, Call&, const Flight::Call&>) {
            body(running, record);
          } else {
            body(running);
          }
        });
    entry.done();
  }
  template <class Body>
  [[gnu::always_inline]] void attempt(Call& call, const Body& body) {
    try {
      call.check_entry();
      body(call);
    } catch (...) {
      fail(call);
      throw;
    }
  }
  void execute(transport::Op op, Call& call, const CollectiveCall& what);
  void all_reduce_apart(Call& call, const CollectiveCall& what);
  /// The exception being handled has ended the call.
  void fail(Call& call);
  void fail(Call& call, const Error& error);
  void break_off(Call& call, const Error& error);
  void between_calls(const std::function<void(Call&)>& body);
  void break_between_calls(const Error& why) noexcept;
  Error abort_error() const;
  void find_shm_groups(Call& call);
  std::shared_ptr<DeviceWork> begin_on_device(const device::Request& request,
                                              const Options& options);
  void on_device(const device::Request& request, const Options& options,
                 const std::function<void(Call&, const device::Mark&)>& then);
  void note_on_device(Call& call, const device::Plan& plan);
  void await_on_device(Call& call, device::Event& mark);
  void use_device(Call& call, const device::Request& request, const Options& options);
  void keep_device(std::unique_ptr<DeviceCalls> calls);
  bool look_after_device();
  void end_device() noexcept;
};

}  // namespace dlaunch
