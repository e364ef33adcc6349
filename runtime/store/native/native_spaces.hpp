#pragma once

#include "runtime/base/flat_map.hpp"
#include "runtime/store/core/session.hpp"
#include "runtime/store/native/backend.hpp"
#include "runtime/store/native/host.hpp"
#include "runtime/store/native/roles.hpp"
#include "runtime/store/native/space_journal.hpp"
#include "runtime/store/protocol/replies.hpp"

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace dlaunch::store {

class NativeSession;

/// One epoch's keys, and the answers that a reconnecting client may ask for again. No I/O.
class NativeSpace final : public Namespace {
 public:
  /// No epoch: that of each session's WELCOME.
  NativeSpace(SpaceId number, std::optional<std::uint64_t> its_epoch, const Limits& limits)
      : Namespace(limits), id(number), epoch(its_epoch), memory_(limits.memory) {}

  void tick(Clock::time_point now) override;
  std::optional<Clock::time_point> next_deadline() const override;

  /// The answers to this session's changes, kept while it sits here. Valid until leave().
  Replies& replies_of(std::uint64_t session);
  /// The session leaves, and may come back and repeat unanswered requests.
  void leave(std::uint64_t session, Clock::time_point now);
  /// The session will not come back.
  void forget(std::uint64_t session);
  /// Remembers the answer to the session's next change, also in the journal if there is one.
  void remember(std::uint64_t session, Replies& replies, std::uint64_t request, wire::Type type,
                BytesView payload);
  /// To be called before anybody sits here: restores the kept contents, and sends changes to the
  /// journal.
  void keep(KeptSpace kept, Clock::time_point now);
  /// Why no change may be made now; empty: it may.
  std::string refusal() const { return journal_ ? journal_->refusal() : std::string(); }

  const SpaceId id;
  const std::optional<std::uint64_t> epoch;

 private:
  friend class NativeSpaces;

  struct Known {
    explicit Known(std::shared_ptr<MemoryBudget> memory) : replies(std::move(memory)) {}
    Replies replies;
    bool here = false;
    Clock::time_point forget;  ///< When a session that is not here is forgotten.
  };
  void forget_oldest();

  /// Ordered, so that nodes stay where they are. A session that has changed nothing is not in it.
  std::map<std::uint64_t, Known> known_;
  std::deque<std::pair<Clock::time_point, std::uint64_t>> left_;  ///< In the order of leaving.
  std::unique_ptr<SpaceJournal> journal_;  ///< Null: it ends with the server.
  const std::shared_ptr<MemoryBudget> memory_;
  bool touched_ = false;
  std::optional<Clock::time_point> scheduled_;  ///< As in NativeSpaces::deadlines_.
};

/// A part of the end of a session or a namespace. If it fails, for want of memory say, the other
/// parts are still done, and whatever it leaves behind ends with its lease or its namespace.
template <class Part>
void attempt(Part part) noexcept {
  try {
    part();
  } catch (const std::exception&) {
  }
}

/// All native sessions of one server, and the namespaces they sit in. Its cost depends on the
/// namespaces in use, not on how many there are. No I/O.
class NativeSpaces {
 public:
  NativeSpaces(Host& host, const Limits& limits);
  ~NativeSpaces();

  /// A session for a new connection, which is called `client` and never reused. It sits in the
  /// first space once it is welcomed, unless the host has seated it elsewhere.
  std::unique_ptr<Session> open(std::uint64_t client, Outbox& out);

  SpaceId add(std::uint64_t epoch, const Limits& limits);
  /// The same, of one that outlives the server.
  SpaceId add(std::uint64_t epoch, const Limits& limits, KeptSpace kept, Clock::time_point now);
  /// Clients that sit in it sit nowhere then, and their waits are refused with Errc::aborted and
  /// `why`.
  void drop(SpaceId id, std::string_view why);
  /// False where there is no such client or space. The client's waits elsewhere are refused with
  /// Errc::aborted.
  bool seat(std::uint64_t client, SpaceId id);
  /// Sets what the client may do from now on; at first it may do everything.
  void limit(std::uint64_t client, Role role);
  NativeSpace* find(SpaceId id);
  /// Store requests are carried out there; answers come back by answer().
  void forward_to(Backend* backend) { backend_ = backend; }
  /// `remember`: it answers a change. Dropped where the client has gone.
  void answer(std::uint64_t client, const wire::FrameHeader& header, BytesView payload,
              bool remember);

  /// Answers what has expired by `now`.
  void tick(Clock::time_point now);
  std::optional<Clock::time_point> next_deadline();

 private:
  friend class NativeSession;

  /// Its next deadline may have changed.
  void touch(NativeSpace& space);
  /// Gives back a part of what was dropped.
  void dissolve();
  /// Brings deadlines_ up to date with those that were touched.
  void schedule();

  Host& host_;
  Backend* backend_ = nullptr;
  Clock::time_point now_;  ///< The time of the latest call that brought it.
  FlatMap<SpaceId, std::unique_ptr<NativeSpace>> spaces_;
  std::vector<std::unique_ptr<NativeSpace>> leaving_;  ///< Dropped, and not given back yet.
  SpaceId next_ = first_space;
  std::vector<SpaceId> touched_;
  std::set<std::pair<Clock::time_point, SpaceId>> deadlines_;
  FlatMap<std::uint64_t, NativeSession*> clients_;
  FlatMap<std::uint64_t, NativeSession*> by_session_;  ///< Those connected.
};

}  // namespace dlaunch::store
