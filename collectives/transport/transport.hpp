#pragma once

#include "collectives/transport/control_inbox.hpp"
#include "collectives/transport/message/by_rank.hpp"
#include "collectives/transport/message/inbox.hpp"
#include "collectives/transport/message/message.hpp"
#include "collectives/transport/message/topology.hpp"
#include "collectives/transport/progress_lock.hpp"
#include "collectives/transport/shm/rings.hpp"
#include "collectives/transport/tcp/channel.hpp"
#include "collectives/transport/tcp/proof.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/segment/flight.hpp"
#include "runtime/segment/segment.hpp"
#include "runtime/segment/wakeup.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/world.hpp>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

namespace dlaunch::algorithms {
class Table;
}

namespace dlaunch::transport {

/// The ranks of a world, linked as far as they have talked: by rings within a node whose ranks
/// share a segment, else by TCP. The sender decides by which; a receiver takes what comes. It moves
/// bytes and gathers news; what a call makes of the news is decided by Call.
///
/// Threads: any number may wait in it. A thread that uses it holds lock(), and reads only then what
/// it has posted; step() releases the lock while it sleeps. rank, size and wake are free.
/// Never hold the lock while computing: others' data would stand still.
class Transport {
 public:
  /// Takes or binds this rank's listener, and makes its address known if nobody did; the first mesh
  /// of a world also announces this rank's location.
  explicit Transport(const World& world);
  /// A mesh of its own for some of the world's ranks, who have agreed on its generation.
  Transport(const World& world, std::uint32_t generation);
  /// In every generation that ranks agree on; those that they count do not come to it.
  static constexpr std::uint32_t derived = 0x8000'0000;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  const World& world() const { return world_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return progress_lock_.lock(); }
  /// Not held where another thread has it.
  [[nodiscard]] std::unique_lock<std::mutex> try_lock() { return progress_lock_.try_lock(); }
  const Inbox& inbox() const { return inbox_; }
  Inbox& inbox() { return inbox_; }
  /// Which of the meshes made from this world it is.
  std::uint32_t generation() const { return generation_; }
  Store& store() { return *store_; }
  /// By which calls choose their algorithms. Not to be replaced while there is a call.
  const algorithms::Table& table() const { return *table_; }
  const std::shared_ptr<const algorithms::Table>& shared_table() const { return table_; }
  void go_by(std::shared_ptr<const algorithms::Table> table) { table_ = std::move(table); }
  /// What this rank shares with others of its node, and its bell there; null where there is
  /// nothing.
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  const std::shared_ptr<Wakeup>& bell() const { return bell_; }
  /// The record of this rank's calls. Free of the lock.
  const std::shared_ptr<Flight>& flight() const { return flight_; }
  /// The number under which it records a communicator's calls.
  std::uint64_t flight_id(std::uint64_t communicator) const noexcept {
    // Communicators of several meshes may have the same id.
    return communicator ^ generation_ * 0x9e3779b97f4a7c15U;
  }
  /// A collective of this rank, or of another of its node, with its place in the program:
  /// "all_reduce #3 (sum, f32, 8 elements) [train.cpp:42]"; empty where it is not remembered.
  std::string call_made(int rank, std::uint64_t communicator, std::uint64_t sequence) const;
  /// The place from which that rank sent such a message: "[train.cpp:42]", or for several lines
  /// "[train.cpp:42] or [train.cpp:47]"; empty if it is not known here.
  std::string sent_from(int rank, const Header& message) const;
  /// This rank's place in the segment; -1 without one.
  int local() const { return segment_ ? segment_->local_of(rank_) : -1; }
  /// This thread sleeps no more. The bell goes on ringing while another thread of this rank sleeps.
  void get_up() noexcept {
    if (!progress_lock_.are_shared()) bell_->get_up();
  }

  void post(Receive& receive);
  void post(Outgoing& message);
  void withdraw(Receive& receive);
  void withdraw(Outgoing& message);
  /// The short ways; false: nothing was done, and the message must be posted. This one for a peer
  /// that shares memory, and a message that is not long.
  bool send_now(const Outgoing& message) {
    return out(message.to).send_now(message.header, message.payload);
  }
  /// For a message that is not long. Waits for a moment only.
  bool receive_now(Receive& receive);
  void post_control(int to, const Header& header, Bytes payload);
  /// Does what can be done; if that is nothing, waits for something to do, or for another thread to
  /// have done something, until `deadline` at most; the first moments awake, unless `spins` says
  /// that the caller has waited like that before. Throws what Membership::losses throws.
  void step(Clock::time_point deadline, bool spins = true);
  /// For a thread that has taken its turn already, and waits for whatever comes.
  void step_in_turn();
  ProgressLock& progress_lock() { return progress_lock_; }
  /// Looks for more from this rank's connection, and sends what is to be sent, for a moment without
  /// sleeping, where ranks do not outnumber the processors; true if something moved.
  bool look_for(int from);
  /// Ends every step() that waits.
  void wake() noexcept;

  /// Which ranks are where; null as long as it is not known of all. From the first call on every
  /// step() asks again, from time to time.
  const Topology* topology();

  // ---- News. ----

  /// The loss of this rank that the membership told of.
  const PeerLoss* loss_of(int rank) const;
  /// Nothing more can come from this rank: it ended its channel to us, or never made one and ended
  /// ours to it. The reason, null if more may come.
  const std::string* end_of(int rank) const;
  /// Messages that it sent before it ended may still come: its channel to us is open and is read.
  bool has_left_something(int rank) const;
  /// Nothing more comes from this rank, by what is known.
  bool is_gone(int rank) const {
    return end_of(rank) != nullptr || (loss_of(rank) != nullptr && !has_left_something(rank));
  }
  /// Our channel to this rank does not work; the reason, null if it does.
  const std::string* break_of(int rank) const;
  bool hears_of_losses() const { return membership_ != nullptr; }
  const std::vector<PeerLoss>& losses() const { return losses_; }
  /// When this mesh heard of each of them.
  const std::vector<Clock::time_point>& losses_heard() const { return losses_heard_; }
  const ControlInbox& control() const { return control_; }
  ControlInbox& control() { return control_; }
  /// Asks these ranks what the inquiry is about; their answers come with the next steps, until it
  /// is withdrawn from the news. Only ranks that wait in a call tell what they are doing.
  void inquire(const std::vector<int>& ranks, Inquiry& inquiry);
  /// Nothing is left to send.
  bool is_flushed() const;
  /// Connections that were closed because they were not a rank's, or did not prove it in time.
  std::uint64_t strangers() const { return strangers_; }
  /// Why peers' connections wait: "it cannot accept connections: Too many open files"; empty if
  /// they do not.
  const std::string& shortage() const { return shortage_; }

 private:
  /// Connections that have not said who they are.
  static constexpr std::size_t newcomers_max = 256;
  /// How long one may take to prove who it is; and after how long it makes room for another when
  /// there are too many.
  static constexpr auto proof_timeout = std::chrono::seconds(3);
  static constexpr auto newcomer_slow = std::chrono::milliseconds(250);
  /// Without a descriptor for it a connection waits in the listener's queue; looked at so often.
  static constexpr auto shortage_pause = std::chrono::milliseconds(50);

  struct Newcomer {
    unique_fd fd;
    Acceptance acceptance;
    Clock::time_point since;
  };

  void publish();
  std::string own_host();
  void share(const std::shared_ptr<Segment>& granted);
  std::string key_of(int rank) const;
  Hello hello() const;
  void look_up(int to);
  static bool has_processors(int ranks_here);
  bool look_up_pending(Clock::time_point now);
  bool connect_pending();
  void start_sending(int to, bool had_work);
  void accept_all();
  bool greet(Newcomer& newcomer);
  bool admit(int from, unique_fd fd);
  bool may_accept(Clock::time_point now);
  void drop_slow_newcomers();
  const Key* key() const { return key_ ? &*key_ : nullptr; }
  void on_control(int from, const Header& header, BytesView payload);
  void take_inquiry(int from, const Header& header);
  void answer(int from, const Header& inquiry, const Status& status);
  void tell_threads() noexcept;
  bool move_pending(Clock::time_point now);
  void wait_in_turn(Clock::time_point deadline, Clock::time_point now, bool moved, bool spins);
  void read_losses();
  bool pump_unpolled();
  bool pump_rings();
  bool take_from(InChannel& channel, Receive& receive);
  bool spin(Clock::time_point now, Clock::time_point until);
  bool spin_on_sockets(Clock::time_point now);
  void sleep(Clock::time_point until, bool only_look);
  Clock::time_point next_wake(Clock::time_point deadline) const;
  bool poll_and_pump(int timeout_ms);
  void fill_polled();
  void handle_polled();
  OutChannel& out(int rank) { return outs_.get(rank); }
  /// Some address is not known yet.
  bool looks_up() const;

  const World world_;
  int rank_;
  int size_;
  std::uint64_t job_;
  std::uint64_t epoch_;
  std::uint32_t generation_ = 0;
  std::shared_ptr<Store> store_;
  std::shared_ptr<Membership> membership_;
  std::optional<Key> key_;  ///< The ranks prove to each other that they know it.
  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Wakeup> bell_;
  std::shared_ptr<Flight> flight_;
  unique_fd listener_;
  unique_fd wake_;
  Inbox inbox_;
  OnControl on_control_;
  Survey survey_;
  std::shared_ptr<const algorithms::Table> table_;
  bool surveying_ = false;
  ByRank<OutChannel> outs_;       ///< To whom something was posted.
  ByRank<InChannel> ins_;         ///< From whom there was a connection.
  bool has_connections_ = false;  ///< In either direction, at any time so far.
  std::optional<Rings> rings_;
  std::vector<OutChannel*> ring_outs_;
  std::deque<Newcomer> newcomers_;
  std::uint64_t strangers_ = 0;
  std::string shortage_;
  Clock::time_point accept_again_{};
  const bool spins_;
  std::vector<PeerLoss> losses_;
  std::vector<Clock::time_point> losses_heard_;
  ControlInbox control_;
  Clock::time_point losses_read_{};
  Clock::time_point sockets_looked_at_{};
  Clock::time_point next_lookup_{};
  Clock::duration lookup_pause_{};
  /// The thread whose turn it is has it.
  std::vector<pollfd> polled_;
  std::vector<InChannel*> polled_ins_;
  std::vector<OutChannel*> polled_outs_;
  std::vector<OutChannel*> sending_;  ///< Used by a thread that spins.
  ProgressLock progress_lock_;
};

}  // namespace dlaunch::transport
