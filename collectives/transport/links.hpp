#pragma once

#include "collectives/transport/control_inbox.hpp"
#include "collectives/transport/made_calls.hpp"
#include "collectives/transport/message/by_rank.hpp"
#include "collectives/transport/message/inbox.hpp"
#include "collectives/transport/message/location.hpp"
#include "collectives/transport/message/message.hpp"
#include "collectives/transport/message/pauses.hpp"
#include "collectives/transport/message/poller.hpp"
#include "collectives/transport/message/send_queue.hpp"
#include "collectives/transport/message/transport.hpp"
#include "collectives/transport/progress_lock.hpp"
#include "collectives/transport/tcp/tcp_transport.hpp"
#include "runtime/base/os/relax.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/segment/flight.hpp"
#include "runtime/segment/segment.hpp"
#include "runtime/segment/wakeup.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/world.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>

namespace dlaunch::algorithms {
class Table;
}

namespace dlaunch::transport {

/// The ranks of a world, linked as far as they have talked. For each rank that something is sent to
/// it chooses the first of its transports that leads there: rings within a node whose ranks share a
/// segment, else TCP. On the receiving side it takes messages from any transport. It moves messages
/// and gathers news; Call decides what they mean for a call.
///
/// Threads: any number may wait in it. A thread that uses it holds lock(), and reads only then what
/// it has posted; step() releases the lock while it sleeps. rank, size and wake are free.
/// Never hold the lock while computing: others' data would stand still.
class Links final : private Sources, private LookLimit {
 public:
  /// An extra transport that is preferred to the built-in ones.
  using MakeTransport = std::function<std::unique_ptr<Transport>(const Surroundings& mesh)>;

  /// Takes or binds this rank's listener, and makes its address known if nobody did; the first mesh
  /// of a world also announces this rank's location. `words`: the names that this rank's flight
  /// recorder has for what it records.
  Links(const World& world, const FlightWords& words, const MakeTransport& first = nullptr);
  /// A mesh of its own for some of the world's ranks, who have agreed on its generation.
  Links(const World& world, const FlightWords& words, std::uint32_t generation);
  /// A bit that is set in every agreed generation; counted generations never reach it.
  static constexpr std::uint32_t derived = 0x8000'0000;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  const World& world() const { return world_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  [[nodiscard]] ProgressLock::Held lock() { return progress_lock_.lock(); }
  /// Not held where another thread has it.
  [[nodiscard]] ProgressLock::Held try_lock() { return progress_lock_.try_lock(); }
  const Inbox& inbox() const { return inbox_; }
  Inbox& inbox() { return inbox_; }
  /// Which of the meshes made from this world it is.
  std::uint32_t generation() const { return generation_; }
  Store& store() { return *store_; }
  /// The table by which calls choose their algorithms. Not to be replaced while there is a call.
  const algorithms::Table& table() const { return *table_; }
  const std::shared_ptr<const algorithms::Table>& shared_table() const { return table_; }
  void go_by(std::shared_ptr<const algorithms::Table> table) { table_ = std::move(table); }
  /// What this rank shares with others of its node, and its bell there; null where there is
  /// nothing.
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  const std::shared_ptr<Wakeup>& bell() const { return bell_; }
  const MadeCalls& made_calls() const { return *made_calls_; }
  /// This rank's place in the segment; -1 without one.
  int local() const { return segment_ ? segment_->local_of(rank_) : -1; }
  /// This thread sleeps no more. The bell goes on ringing while another thread of this rank sleeps.
  void get_up() noexcept {
    if (!progress_lock_.are_shared()) bell_->get_up();
  }

  void post(Receive& receive);
  /// The same where no other thread waits; false, and nothing is done, where one does or there is
  /// no memory. Afterwards the receive may be "answering": see tell_senders.
  bool post_now(Receive& receive) noexcept;
  void post(Outgoing& message);
  void withdraw(Receive& receive);
  /// Withdraws a message; a synchronous one must be withdrawn even after it has failed.
  void withdraw(Outgoing& message);
  // The inbox's functions for messages that are set apart.
  void post_apart(Receive& receive, const Inbox::Apart& message);
  void put_back(const Inbox::Apart& message);
  /// The short ways; false: nothing was done, and the message must be posted. This one for a peer
  /// that shares memory, and a message that is not long.
  bool send_now(int to, const Header& header, BytesView payload) {
    return out(to).send_now(header, payload);
  }
  bool send_now(const Outgoing& message) {
    return send_now(message.to, message.header, message.payload);
  }
  /// For a message that is not long, from whichever rank if that is asked for and all are in
  /// memory. Waits for a moment only; where ranks share processors the awaited one may have this
  /// one meanwhile, unless `yields` is false because this thread has others' calls to go on with.
  bool receive_now(Receive& receive, bool yields = true);
  /// For a message that is there already; neither makes a system call. The first one says whether
  /// it pays to call the second, and lets receives that were posted earlier have theirs.
  bool may_be_there(const Receive& receive);
  bool receive_at_once(Receive& receive);
  /// A failure or an inquiry for a rank that is not connected yet throws what Store::wait throws
  /// where the store is away; it is not sent then.
  void post_control(int to, const Header& header, Bytes payload);
  /// Makes progress. If there is none, waits until there is, or until another thread has made some,
  /// but not beyond `deadline`. The first moments are spent awake, unless `spins` is false because
  /// the caller has already waited so. Throws what Membership::losses throws.
  void step(Clock::time_point deadline, bool spins = true);
  /// Makes progress, and waits for nothing.
  void look();
  /// Repeats that for a moment until it `holds`, if the awaited data goes through memory (to or
  /// from `rank`; -1: any). Returns whether it holds. Where ranks share processors, the awaited
  /// rank may need this one, and gets it after a few looks.
  template <class Holds>
  bool look_awhile(int rank, const Holds& holds) {
    if (!is_near(rank)) return holds();
    if (progress_lock_.is_attended()) take_over();
    const int most = looks_most();
    for (int looks = 0; !holds(); ++looks) {
      if (looks == most || is_over()) return false;
      if (!look_into_memory()) pause_after(looks);
    }
    return true;
  }
  /// The progress thread's, which moves messages until a caller takes over, nothing is pending any
  /// more, or it is to stop: true. False where somebody calls, or has since it was asked before.
  /// `wakes`: a descriptor that wakes it when it becomes readable.
  bool attend(const std::stop_token& stop, int wakes);
  /// Whether some messages are not complete.
  bool has_pending() const;
  /// Tells the senders of synchronous messages that were received, which completes the receives.
  bool tell_senders() {
    return (inbox_.has_answering() || !tellings_.empty()) && tell_some_senders();
  }
  /// Whether a sender has still to be told that its synchronous message was received.
  bool is_telling() const noexcept { return !tellings_.empty(); }
  ProgressLock& progress_lock() { return progress_lock_; }
  /// Reads from this rank's connection and sends queued data, for a moment without sleeping, if
  /// ranks do not outnumber the processors; true if something moved.
  bool look_for(int from);
  /// Ends every step() that waits.
  void wake() noexcept;
  /// An eventfd for the program, which reads it: written whenever something has moved, and
  /// when it is made. Always the same one. Throws Error{internal}.
  int descriptor();
  /// Writes it, if there is one: also for a message that is complete when it is started, which
  /// nothing moves later. Needs no lock, like wake.
  void tell_program() noexcept {
    const int fd = told_program_.load(std::memory_order_acquire);
    if (fd >= 0) [[unlikely]]
      write_to_program(fd);
  }
  /// Whether ranks share processors, so that a rank that looks again and again has to yield.
  bool is_crowded() const { return crowded_; }

  // ---- News. ----

  /// The loss of this rank that the membership told of.
  const PeerLoss* loss_of(int rank) const;
  /// Nothing more can come from this rank: it ended its way to us, or never made one and ended
  /// ours to it. The reason, null if more may come.
  const std::string* end_of(int rank) const;
  /// Calls `visit` with each rank from which or to which anything has gone, with some ranks twice.
  /// No end is known of any other rank.
  template <class Visit>
  void visit_known_ranks(Visit visit) const {
    for (const auto& in : ins_) visit(in.rank);
    for (const auto& out : outs_) visit(out.rank);
  }
  /// Whether messages that the rank sent before it ended may still come: its way to us is open and
  /// is being read.
  bool has_left_something(int rank) const;
  /// Whether nothing more comes from this rank, as far as is known.
  bool is_gone(int rank) const {
    return end_of(rank) != nullptr || (loss_of(rank) != nullptr && !has_left_something(rank));
  }
  /// Our way to this rank does not work; the reason, null if it does.
  const std::string* break_of(int rank) const;
  bool hears_of_losses() const { return membership_ != nullptr; }
  const std::vector<PeerLoss>& losses() const { return losses_; }
  /// When this mesh heard of each loss.
  const std::vector<Clock::time_point>& losses_heard() const { return losses_heard_; }
  const ControlInbox& control() const { return control_; }
  ControlInbox& control() { return control_; }
  /// Asks these ranks what the inquiry is about; their answers come with the next steps, until it
  /// is withdrawn from the news. Only ranks that wait in a call tell what they are doing.
  void inquire(const std::vector<int>& ranks, Inquiry& inquiry);
  /// Whether nothing is left to send.
  bool is_flushed() const;
  /// Connections that were closed because they were not a rank's, or did not prove it in time.
  std::uint64_t strangers() const { return tcp_ ? tcp_->strangers() : 0; }
  /// Why peers' connections wait: "it cannot accept connections: Too many open files"; empty if
  /// they do not.
  std::string shortage() const { return tcp_ ? tcp_->shortage() : ""; }

 private:
  /// Tells that a descriptor which no transport has was ready.
  class Signal final : public Watched {
   public:
    void on_ready(std::uint32_t) override { is_given_ = true; }
    bool take() noexcept { return std::exchange(is_given_, false); }

   private:
    bool is_given_ = false;
  };

  Links(const World& world, const FlightWords& words, std::optional<std::uint32_t> generation,
        const MakeTransport& first);
  void share(const std::shared_ptr<Segment>& granted);
  void add_transport(std::unique_ptr<Transport> transport);
  Surroundings surroundings() { return {poller_, inbox_, on_control_, *this}; }

  bool has(int from) const override { return ins_.find(from) != nullptr; }
  void add(int from, ReceivingEnd& end) override { ins_.get(from) = &end; }
  ReceivingEnd* in(int rank) const {
    ReceivingEnd* const* end = ins_.find(rank);
    return end != nullptr ? *end : nullptr;
  }
  SendQueue& out(int rank) { return outs_.get(rank, rank); }

  bool choose(SendQueue& queue);
  bool asks_store(int to);
  void start_sending(SendQueue& queue, bool had_work);
  bool is_undecided() const;
  bool decide(Clock::time_point now);
  void on_control(int from, const Header& header, BytesView payload);
  std::optional<Answer> answer_to(const Header& inquiry) const;
  bool tell_some_senders();
  void on_taken(int from, std::uint64_t ticket);
  void tell_threads() noexcept;
  static void write_to_program(int fd) noexcept;

  bool is_over() const override { return progress_lock_.are_wanted(); }
  bool allows_system_calls() const override;
  static constexpr int looks_max = 512, looks_max_crowded = 3, yields_max = 32;
  int looks_most(bool yields = true) const {
    return !crowded_ ? looks_max : looks_max_crowded + (yields ? yields_max : 0);
  }
  /// Pauses after so many looks in vain. It yields the processor where ranks share it, since the
  /// awaited rank may need it.
  void pause_after(int looks) const noexcept {
    if (crowded_ && looks >= looks_max_crowded) {
      ::sched_yield();
    } else {
      relax();
    }
  }
  bool is_near(int rank) const;
  bool take_from_any(Receive& receive);
  bool serve_earlier(int from, ReceivingEnd& end);
  bool receive_from_any(Receive& receive, bool yields);
  bool receive_from_one(Receive& receive, bool yields);
  bool yield_until_taken(ReceivingEnd& end, Receive& receive);
  void take_over() noexcept;
  void wait_aside(Clock::time_point now, bool moved);
  bool has_connections() const { return poller_.size() > watched_at_rest_; }
  bool progress(Clock::time_point now);
  bool look_into_memory();
  void wait_in_turn(Clock::time_point deadline, Clock::time_point now, bool moved, bool spins);
  bool read_losses();
  bool spin(Clock::time_point now, Clock::time_point until);
  bool spin_on_sockets(Clock::time_point now);
  void sleep(Clock::time_point until, bool only_look);
  Clock::time_point next_wake(Clock::time_point deadline) const;
  bool poll(int timeout_ms);
  void take_signals();

  const World world_;
  const int rank_;
  const int size_;
  std::uint32_t generation_ = 0;
  std::shared_ptr<Store> store_;
  std::shared_ptr<Membership> membership_;
  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Wakeup> bell_;
  std::optional<MadeCalls> made_calls_;
  std::shared_ptr<const algorithms::Table> table_;
  Inbox inbox_;
  const OnControl on_control_;
  ControlInbox control_;
  Pauses pauses_;  ///< Pauses between two questions to the store.
  std::vector<PeerLoss> losses_;
  std::vector<Clock::time_point> losses_heard_;
  Clock::time_point losses_read_{};

  unique_fd wake_, program_;
  std::atomic<int> told_program_{-1};  ///< The same, for any thread.
  Signal woken_, told_, rung_;
  Poller poller_;
  Poller::Watch wake_watch_, membership_watch_, bell_watch_;
  std::vector<std::unique_ptr<Transport>>
      transports_;                     ///< The first that leads to a rank is taken.
  std::vector<Transport*> in_memory_;  ///< The transports in memory.
  TcpTransport* tcp_ = nullptr;        ///< The last one; null in a world of one.
  std::size_t watched_at_rest_ = 0;    ///< Descriptors without any connection.
  ByRank<ReceivingEnd*> ins_;          ///< Receiving ends of ranks that have sent, or have ended.
  std::size_t next_in_ = 0;            ///< The first to look at for a message from any.
  ByRank<SendQueue> outs_;             ///< Queues to ranks to which something was posted.
  std::vector<SendQueue*> busy_;       ///< Those with something to send, and some that had.
  std::uint64_t tickets_ = 0;          ///< Synchronous messages so far.
  std::map<std::uint64_t, Outgoing*> untaken_;  ///< Unconfirmed synchronous messages, by ticket.
  /// What tells senders that their messages were received, and has not left yet.
  std::vector<std::unique_ptr<Outgoing>> tellings_;
  const bool crowded_;  ///< This host's ranks outnumber its processors.
  Clock::time_point sockets_looked_at_{};
  ProgressLock progress_lock_;
  int progress_wakeup_ = -1;  ///< Wakes the progress thread where that has its turn.
};

}  // namespace dlaunch::transport
