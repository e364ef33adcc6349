#pragma once

#include "runtime/store/core/leases.hpp"
#include "runtime/store/native/backend.hpp"
#include "runtime/store/protocol/replies.hpp"
#include "runtime/store/relay/relay.hpp"

#include <compare>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>

/// The inside of Relay, for the files that implement it and nobody else: relay.cpp has workers,
/// calls and time, relay_asks.cpp what goes up and comes back, relay_rounds.cpp barriers and
/// all_gathers, relay_leases.cpp leases.
namespace dlaunch::store {
namespace asio = boost::asio;

/// The relay's state of one epoch, replaced as a whole with the next. A *call* is one request of
/// one worker; an *ask* is one request that goes up, for one call or for several.
struct RelayEpoch {
  using WorkerId = std::uint64_t;
  using AskId = std::uint64_t;

  struct RoundKey {
    wire::Type type{};
    std::string name;
    std::uint64_t round = 0;
    int count = 0;
    auto operator<=>(const RoundKey&) const = default;
  };
  struct Call {
    wire::Type type{};
    Clock::time_point deadline;
    std::size_t bytes = 0;
    AskId ask = 0;                  ///< 0: its round has not gone up yet.
    std::optional<RoundKey> round;  ///< The round of a barrier or an all_gather.
    std::string what;               ///< "waiting for 'key'", for the message of a timeout.
    bool overdue = false;           ///< Its deadline has passed, the answer is on its way.
  };
  struct Worker {
    std::uint64_t session = 0;
    ConnectionId connection = 0;  ///< 0: gone, and may come back.
    std::map<std::uint64_t, Call> calls;
    std::size_t bytes = 0;
    Replies late;  ///< Answers to changes that came while it was away.
    Clock::time_point forget;
  };
  struct Ask {
    wire::Type type{};
    Bytes payload;  ///< Kept if it may be sent again, with another timeout.
    std::size_t timeout_at = 0;
    Clock::time_point deadline;
    std::uint64_t number = 0;  ///< The uplink's.
    std::vector<Caller> callers;
    std::string alike;  ///< Equal requests share this answer; empty: none do.
    std::optional<RoundKey> round;
    struct Lease {
      std::string key;
      Clock::duration length{};
    };
    std::optional<Lease> lease;
    struct Watched {
      std::string key;
      bool known = false;
      std::optional<std::size_t> value;  ///< A hash of it; nullopt: absent.
    };
    std::optional<Watched> watched;
  };
  /// A round that waits for local ranks, or one some of which has gone up.
  struct Round {
    std::map<int, Bytes> unsent;
    std::set<int> came;
    std::vector<Caller> callers;
    bool partly_sent = false;
  };

  NodePlace place;
  Server* server = nullptr;

  std::map<WorkerId, Worker> workers;
  std::map<ConnectionId, WorkerId> by_connection;
  std::map<std::uint64_t, WorkerId> by_session;
  /// The workers that have left, in the order of leaving.
  std::deque<std::pair<Clock::time_point, WorkerId>> left;
  std::set<std::tuple<Clock::time_point, WorkerId, std::uint64_t>> deadlines;

  std::map<AskId, Ask> asks;
  std::map<std::string, AskId, std::less<>> alike;

  std::map<RoundKey, Round> rounds;
  std::vector<RoundKey> to_flush;
  /// When those that are held go up, complete or not. Some may have done so already.
  std::set<std::pair<Clock::time_point, RoundKey>> rounds_due;
  /// The last finished round of each name: a worker that asks for it again is not held up.
  std::map<std::pair<wire::Type, std::string>, std::uint64_t> over;
  std::map<int, std::string> lost;
  std::optional<std::string> store_lost;  ///< The reason, once it is lost.
  std::map<std::string, Bytes, std::less<>> published;
  std::optional<Clock::time_point> forgotten;  ///< When the store was found to be a new one.

  Leases leases;
  struct LeasedKey {
    WorkerId holder = 0;
    Clock::duration length{};
  };
  std::map<std::string, LeasedKey> leased;
  Clock::time_point next_renewal = Clock::time_point::max();
};

/// Workers and asks have numbers that no later epoch has.
struct Relay::State final : RelayEpoch, Backend, std::enable_shared_from_this<Relay::State> {
  State(asio::io_context& context, Uplink& link) : io(context), uplink(link), timer(context) {}

  /// Forgets everything of the epoch before.
  void begin(RelayEpoch epoch);

  // ---- Workers and their calls (relay.cpp) ----

  void on_gone(const From& from, bool goodbye) override;
  WorkerId worker_of(const From& from);
  /// Why the worker may not ask more; empty: it may.
  std::string objection(const Worker& worker, BytesView payload) const;
  /// The call; null if it has ended, since an answer to one caller may end others.
  Call* find_call(Caller by);
  Call& begin_call(Caller by, wire::Type type, BytesView payload, Clock::time_point deadline);
  void cancel(Caller by, std::uint64_t request);
  /// Ends a call without an answer.
  void drop_call(Caller by);
  void answer(Caller to, wire::Type type, BytesView payload, std::uint16_t flags = wire::reply);
  template <class Message>
  void answer(Caller to, const Message& message) {
    answer(to, Message::type, wire::payload_of(message));
  }
  void forget_workers(Clock::time_point now);

  // ---- Time (relay.cpp) ----

  void arm();
  void on_time(Clock::time_point now);
  void overdue(Caller by, Clock::time_point now);
  void lose_store(std::string why);
  std::string unreachable(const Call& call) const;

  struct Contribution {
    RoundKey key;
    std::vector<std::int32_t> contributors;
    std::vector<BytesView> blobs;
    Clock::time_point deadline;
  };

  // ---- Asks (relay_asks.cpp) ----

  bool on_request(const From& from, const wire::FrameHeader& header, BytesView payload,
                  Clock::time_point now) override;
  /// Reads the part of a request that the relay has to know; the payload goes on as it is. All of
  /// it is decoded all the same: garbage has to end the worker's connection, not the node's.
  struct Looked {
    bool well_formed = false;
    Clock::time_point deadline;
    std::string what;
    bool alike = false;
    std::optional<Ask::Lease> lease;
    std::optional<std::string> watched;
    std::optional<Contribution> contribution;
    std::optional<std::uint64_t> cancelled;
    std::vector<std::pair<std::string_view, BytesView>> published;
  };
  Looked look(wire::Type type, BytesView payload, Clock::time_point now) const;
  void forward(Caller by, wire::Type type, BytesView payload, const Looked& looked);
  void send(AskId id, BytesView payload);
  void on_answer(AskId id, const wire::FrameHeader& header, BytesView payload);
  /// A timeout at the other end: callers with time left ask again.
  bool ask_again(AskId id, BytesView payload);
  void drop_ask(AskId id);
  void detach(Caller from, AskId ask);
  void look_at_watched(AskId id);
  void on_reconnect(bool all_forgotten);
  /// Keeps what a rank makes known of itself, so that it can be said again.
  void note_published(std::string_view key, BytesView value, bool if_absent);
  void publish_again();
  /// The failure of a wait, with the addition that the store has lost its earlier contents.
  Bytes with_forgotten(const wire::Failed& failure) const;
  void on_looked(AskId id, const wire::FrameHeader& header, BytesView payload);

  // ---- Rounds (relay_rounds.cpp) ----

  void contribute(Caller by, const Contribution& what, BytesView payload);
  bool is_held(const RoundKey& key) const;
  bool all_came(const Round& round) const;
  void flush_later(const RoundKey& key);
  void flush(const RoundKey& key);
  void send_round(const RoundKey& key, const Round& round);
  void round_over(const RoundKey& key);
  void lose(int rank, const std::string& why);
  bool is_local(int rank) const {
    return rank >= place.first_rank && rank < place.first_rank + place.local_size;
  }

  // ---- Leases (relay_leases.cpp) ----

  void hold_lease(WorkerId worker, const Ask::Lease& lease, Clock::time_point now);
  void end_leases(const std::vector<std::string>& keys);
  void renew(Clock::time_point now);

  asio::io_context& io;
  Uplink& uplink;
  asio::steady_timer timer;
  Clock::time_point armed = Clock::time_point::max();  ///< When the timer goes off.
  const Limits limits;
  WorkerId next_worker = 1;
  AskId next_ask = 1;
};

}  // namespace dlaunch::store
