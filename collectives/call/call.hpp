#pragma once

#include "collectives/algorithms/by_node.hpp"
#include "collectives/call/call_window.hpp"
#include "collectives/call/core/argument.hpp"
#include "collectives/call/core/call_context.hpp"
#include "collectives/call/core/call_error.hpp"
#include "collectives/call/core/device_history.hpp"
#include "collectives/transport/links.hpp"
#include "collectives/transport/message/mesh.hpp"
#include "collectives/transport/shm/shm_group.hpp"

#include <dlaunch/communicator.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch {

/// Whether a communicator was ended from outside of its calls, and where in the program. For any
/// number of threads.
class Aborted {
 public:
  /// The first one counts.
  void set(const CallSite& site) noexcept {
    if (is_taken_.exchange(true)) return;
    site_ = site;
    is_set_ = true;
  }
  operator bool() const noexcept { return is_set_; }
  /// "rank 1 called abort() [watchdog.cpp:7]"; once it is set.
  std::string text(int rank) const;

 private:
  std::atomic<bool> is_taken_{false};
  CallSite site_{"", 0, ""};
  std::atomic<bool> is_set_{false};
};

/// Things that a communicator's call leaves to the next one, which need not make them again.
struct Kept {
  std::vector<std::size_t> parts;
  BufferPool buffer_pool;
};

/// A message as the flight recorder takes it.
inline Flight::Call record_of(const transport::Fingerprint& message, int peer, int tag,
                              Flight::Kind kind = Flight::Kind::call) noexcept {
  Flight::Call call = message.record();
  call.what = Flight::Call::pack(static_cast<std::uint8_t>(message.op),
                                 static_cast<std::uint8_t>(message.dtype), 0, peer);
  call.sequence = 0;
  call.argument = static_cast<std::uint64_t>(tag);
  return call.as(kind);
}

/// One call on a communicator, while it lasts: it waits, and decides what the news mean. Throws
/// CallError. It has withdrawn all it posted when it returns or throws. Making one costs next to
/// nothing: it looks at the clock when it first has to wait. It holds the mesh's lock while it
/// waits, and not between.
class Call final : public Mesh, public transport::WaitPolicy {
 public:
  /// All borrowed for the call's life, as it and the fingerprint are. `peer` and `tag` are for
  /// messages: the rank here.
  struct Setting {
    transport::Links& mesh;
    const Group& group;
    Kept& kept;
    const Aborted& aborted;
    Clock::duration timeout;
    CallSite site;
    Flight::Entry* flight = nullptr;  ///< The entry in which it is recorded.
    int peer = any_source;
    int tag = 0;
    CallHistory* history = nullptr;  ///< Not null if a device is used.
  };
  Call(const Setting& setting, const transport::Fingerprint& fingerprint) noexcept
      : setting_(setting), fingerprint_(fingerprint) {}
  ~Call() override = default;
  Call(Setting&& temporary, const transport::Fingerprint& fingerprint) = delete;
  Call(const Setting& setting, transport::Fingerprint&& temporary) = delete;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// What all ranks do before they look at their arguments: wrong ones on another rank end it on
  /// none.
  template <class Prepare>
  void prepare(const Prepare& work) {
    tolerant_ = true;
    work();
    tolerant_ = false;
  }
  /// The ranks' shm group; null where they do not all share memory.
  transport::ShmGroup* shm() const { return shm_; }
  /// Their nodes; null where no two of them share memory, or all do.
  const algorithms::by_node::Nodes* nodes() const { return nodes_; }
  /// From here on. Borrowed for the call's life. `record` is the fingerprint's.
  void use(transport::ShmGroup& shm, const Flight::Call& record) {
    shm_ = &shm;
    shm.begin(*this, record);
  }
  void use(const algorithms::by_node::Nodes& nodes) {
    nodes_ = &nodes;
    if (nodes.shm() == nullptr) return;
    nodes.shm()->begin(*this, fingerprint_.record());
  }
  /// The argument behind the fingerprint's hash; what it borrows is borrowed for the call's life.
  void explain(const Argument& argument) { argument_ = argument; }
  /// Room for the offsets of equal parts, which stays as it is from call to call.
  std::vector<std::size_t>& kept_parts() const { return setting_.kept.parts; }
  BufferPool& buffer_pool() override { return setting_.kept.buffer_pool; }
  const algorithms::Table& table() const override { return setting_.mesh.table(); }
  int rank() const override { return setting_.group.rank; }
  int size() const override { return setting_.group.size(); }
  void send(int to, BytesView data) override;
  void recv(int from, std::span<std::byte> data) override;
  void exchange(int to, BytesView out, int from, std::span<std::byte> in) override;
  Ticket start_send(int to, BytesView data) override;
  Ticket start_recv(int from, std::span<std::byte> data) override;
  void wait(Ticket ticket) override;
  void take_back(Ticket ticket) noexcept override;

  void wait_long(int member, const std::function<bool()>& ready) override;
  [[noreturn]] void disagree(int member, std::uint32_t call) override;
  [[noreturn]] void disagree_with_refused(int member) override;
  [[noreturn]] void differ(int member, std::uint64_t theirs, std::uint64_t ours) override;
  bool is_over() const noexcept override { return setting_.aborted; }

  // A message of the fingerprint's dtype and count: to be posted, or sent and received at once.
  transport::Outgoing make_message(int to, int tag, BytesView data) const;
  transport::Receive make_message_receive(int from, int tag, std::span<std::byte> into) const;
  void send_message(int to, int tag, BytesView data);
  /// World rank and header of it.
  std::pair<int, transport::Header> receive_message(int from, int tag, std::span<std::byte> into);
  /// Waits until neither is pending; either may be null.
  void wait(transport::Receive* receive, transport::Outgoing* outgoing);
  /// Waits until `ready()`, which is asked under the mesh's lock; what it waits for is a message of
  /// `from` (a rank here, or any).
  void wait_until(const std::function<bool()>& ready, int from);
  /// The same for what nobody tells of: looks again and again. `from_it_alone`: nothing but what
  /// that rank does in a call of this communicator can end it.
  void look_until(const std::function<bool()>& ready, int from, bool from_it_alone);
  /// The same for what a device does, which all ranks have a part in.
  void watch_until(const std::function<bool()>& ready);
  /// Throws if something has ended the call, or one before it on the device; waits only when a rank
  /// is lost, for the cause.
  void look();
  /// The same if there is news that were received, by whoever did: costs next to nothing.
  void look_at_news();
  /// Tells other ranks what is on this one's streams and was not told, and waits for nothing: each
  /// rank compares what one other has called with what it calls itself, so that of ranks that
  /// disagree two neighbours do; messages are compared by those who receive them.
  void tell_device_calls(CallHistory& history);
  /// Throws if the call has failed already, by what is known without waiting.
  void check_entry() {
    if (setting_.aborted || setting_.mesh.control().has_failures()) [[unlikely]]
      check_known();
  }

  /// The end of this call, for all ranks: they have come, and made the same calls as this one.
  void confirm(const RootedWindow& window);

  const transport::Fingerprint& fingerprint() const { return fingerprint_; }
  /// "all_reduce #3", "send to rank 1 (tag 7)", with the communicator's name unless "world".
  std::string label() const { return context().label(); }
  /// Its arguments are wrong: the ranks' shm group learns of it, which may have to be waited for.
  /// Throws what ended the wait.
  void refuse();
  /// Tells the other ranks that this call failed here; waits for nobody, but gives the news
  /// a moment to leave.
  void tell_failure(const Error& error, transport::Scope scope);

 private:
  using TimePoint = Clock::time_point;
  /// Looks so often at changes that nobody tells of.
  static constexpr auto look_interval = std::chrono::microseconds(200);
  /// What the call waits for. The ranks that it needs for that are asked for as often as it
  /// matters: one that has done its part is needed no more, and may leave.
  struct Waiting {
    const transport::Receive* receive = nullptr;
    const transport::Outgoing* outgoing = nullptr;
    /// World ranks of which it waits for something else; or any of `ranks`.
    std::optional<int> rank = std::nullopt;
    std::span<const int> ranks = {};

    /// World ranks from which something has still to come: from all of them, or `any`.
    std::span<const int> to_receive() const;
    bool any() const;
    /// And to which something has still to go.
    std::span<const int> to_send() const;

    bool in_shm_group = false;  ///< For what a member of an shm group publishes.
    bool in_memory = false;     ///< For what that rank alone writes into memory.
    bool all = false;           ///< For what a device does with all ranks.
    bool has_spun = false;      ///< For long enough to go to sleep.
  };
  /// What the call waits for, as long as it does.
  class Current {
   public:
    Current(const Waiting*& place, const Waiting& waiting) noexcept : place_(place) {
      place_ = &waiting;
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current() { place_ = nullptr; }

   private:
    const Waiting*& place_;
  };

  /// The mesh's answer to inquiries, as long as this call waits.
  class Busy {
   public:
    explicit Busy(Call& call)
        : mesh_(call.setting_.mesh), answer_([&call] { return call.activity(); }) {
      mesh_.control().begin(answer_);
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    ~Busy() { mesh_.control().end(answer_); }

   private:
    transport::Links& mesh_;
    transport::Activity answer_;
  };

  // Under the mesh's lock.
  void wait_posted(transport::Receive* receive, transport::Outgoing* outgoing);
  void wait_loop(const Waiting& waiting, const std::function<bool()>& ready,
                 Clock::duration look_interval = Clock::duration::max());
  CallContext context() const {
    return {setting_.group, fingerprint_,  setting_.timeout,
            setting_.site,  setting_.peer, setting_.tag};
  }
  std::string full_label() const { return context().full_label(); }
  std::string where() const { return context().where(); }
  transport::UnderWay activity() const;
  TimePoint deadline() const;
  Flight::Call recorded() const;
  void check_news(const transport::Receive* receive);
  void check_told();
  [[noreturn]] void throw_told(const transport::FailureNotice& notice);
  void check_known();
  void post_call(int world_rank);
  void check_calls();
  void check_device_messages();
  const transport::FailureNotice* wrong_on_device() const;
  std::optional<transport::Fingerprint> call_made(std::uint64_t sequence) const;
  void check_losses(const Waiting& waiting);
  static bool is_orderly(const PeerLoss& loss);
  void check_left();
  void check_source(int world_rank, const Waiting& waiting);
  [[noreturn]] void throw_gone(int world_rank, const std::string* closed);
  void check_waited(int world_rank, const std::string* closed);
  bool is_elsewhere(int world_rank) const;
  const std::string* end_of(int world_rank, const Waiting& waiting) const;
  void check_strays(TimePoint now);
  bool is_blocked(const Waiting& waiting) const;
  void check_chains(const Waiting& waiting, TimePoint now);
  transport::WaitLink own_link() const;
  void post_chain(int to, const transport::WaitChain& chain);
  void take_chain(transport::WaitChain chain, int next, TimePoint now);
  [[noreturn]] static void throw_deadlock(const transport::WaitChain& chain);
  TimePoint noticed(int world_rank);
  [[noreturn]] void throw_lost(int world_rank, const std::string& cause);
  [[noreturn]] void throw_mismatch(const transport::Receive& receive);
  transport::Answer asked(int world_rank, const transport::Inquiry& inquiry);
  std::optional<transport::MadeCall> made(int world_rank, std::uint64_t sequence);
  std::string place_made(int world_rank, std::uint64_t sequence);
  std::string sent_from(const transport::Receive& receive);
  std::string argument_text() const;
  static std::string counts_text(std::uint64_t theirs, std::uint64_t ours);
  void tell_call(const Waiting& waiting);
  std::string disagreement(const transport::Fingerprint& theirs, int world_rank);
  std::string earlier_disagreement(std::uint64_t sequence, int world_rank,
                                   const transport::Fingerprint* heard = nullptr);
  [[noreturn]] void throw_disagreement(const std::string& sentence, Claim claim,
                                       std::uint64_t since = ~std::uint64_t{0}) const;
  Claim disagreed_with(int world_rank, const std::optional<transport::Fingerprint>& theirs) const;
  Claim claim_of(const transport::FailureNotice& notice) const;
  Claim claim_for_others(const Error& failure) const;
  void throw_unless_complete(const Waiting& waiting, const std::function<bool()>& ready);
  std::vector<int> others() const;
  bool ask_others(const std::vector<int>& ranks, const std::function<bool()>& ready);
  void ask_agents(const std::vector<int>& asked);
  std::string absent_text(const std::vector<int>& asked, Claim& claim) const;
  std::string recorded_doing(int world_rank) const;
  std::string name_of(int world_rank) const { return setting_.group.name_of(world_rank); }
  std::string told_text(const transport::FailureNotice& notice) const;
  std::string refused_text() const;
  /// The collective of this communicator in a rank's flight recorder of which that holds; of
  /// several the one whose number is closest to this call's.
  std::optional<transport::Fingerprint> find_recorded(
      const FlightRing& ring,
      const std::function<bool(const transport::Fingerprint&)>& is_wanted) const;
  /// What a member calls; nullopt if no record of it is left.
  std::optional<transport::Fingerprint> call_of(int member, std::uint32_t hash) const;
  /// The shm group in which members are waited for: all ranks', or the node's.
  transport::ShmGroup* shm_here() const {
    return shm_ != nullptr || nodes_ == nullptr ? shm_ : nodes_->shm();
  }
  int rank_of_member(int member) const {
    return shm_ != nullptr ? member : nodes_->rank_of(member);
  }
  transport::Receive make_receive(int from, std::span<std::byte> into) const;
  transport::Outgoing make_outgoing(int to, BytesView data) const;

  /// A ticket's message; neither: free.
  struct Started {
    std::optional<transport::Receive> receive;
    std::optional<transport::Outgoing> outgoing;
  };
  /// The wait chains of the present wait, after a while.
  struct Chains {
    std::uint64_t turn = 0;
    TimePoint next_own{};     ///< When this rank begins one again,
    Clock::duration pause{};  ///< and how long after the one before.
    TimePoint handed_on{};    ///< The last one.
  };
  /// What a call needs once it has to wait, which small ones seldom have to.
  struct Waits {
    std::optional<TimePoint> deadline;
    std::vector<std::unique_ptr<Started>> started;  ///< By ticket.
    std::vector<Ticket> free_tickets;
    TimePoint look_again = TimePoint::max();  ///< When news that has to settle is due.
    TimePoint look_at_strays{};               ///< Next.
    std::vector<std::pair<int, TimePoint>> noticed;
    const Waiting* current = nullptr;
    Chains chains;
    transport::Inquiry inquiry;
    std::map<int, std::string> seen_by_agents;  ///< What ranks of other nodes do.
  };
  Waits& waits() const {
    if (!waits_) waits_ = std::make_unique<Waits>();
    return *waits_;
  }
  Ticket free_ticket();

  const Setting& setting_;
  transport::ShmGroup* shm_ = nullptr;
  const algorithms::by_node::Nodes* nodes_ = nullptr;
  bool tolerant_ = false;  ///< Wrong arguments on other ranks do not end its waits.
  const transport::Fingerprint& fingerprint_;
  std::optional<Argument> argument_;
  mutable std::unique_ptr<Waits> waits_;  ///< From the first wait on.
};

}  // namespace dlaunch
