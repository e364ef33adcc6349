#include "runtime/store/native/native_spaces.hpp"

#include "runtime/store/native/native.hpp"

#include <algorithm>
#include <string>

namespace dlaunch::store {
namespace {

/// How long a client that vanished may take to come back and repeat what was not answered.
constexpr auto session_linger = std::chrono::seconds(60);
constexpr std::size_t sessions_left_max = 64u << 10;
/// How many of them are forgotten at once.
constexpr std::size_t sessions_per_tick = 1024;
/// How many keys of a namespace that was dropped are given back at once.
constexpr std::size_t keys_per_tick = 2048;

}  // namespace

void NativeSpace::tick(Clock::time_point now) {
  Namespace::tick(now);
  for (std::size_t some = 0; some < sessions_per_tick; ++some) {
    if (left_.empty() || left_.front().first > now) return;
    forget_oldest();
  }
}

std::optional<Clock::time_point> NativeSpace::next_deadline() const {
  const auto next = Namespace::next_deadline();
  if (left_.empty()) return next;
  return next ? std::min(*next, left_.front().first) : left_.front().first;
}

void NativeSpace::keep(KeptSpace kept, Clock::time_point now) {
  SpaceContents& held = kept.contents;
  for (const auto& each : held.keys) {
    values.restore_key(each.key, each.value, each.owner, each.lease, now);
  }
  for (const auto& [queue, value] : held.entries) values.restore_entry(queue, value);
  for (const auto& each : held.rounds) {
    values.restore_round({each.gathers, each.name, each.round, each.block, each.too_big});
  }
  for (const auto& each : held.answers) {
    replies_of(each.session).remember(each.request, each.type, each.payload);
  }
  for (auto& [session, known] : known_) leave(session, now);
  journal_ = std::move(kept.journal);
  if (journal_) values.log_to(*journal_);
  values.settle();
}

void NativeSpace::remember(std::uint64_t session, Replies& replies, std::uint64_t request,
                           wire::Type type, BytesView payload) {
  replies.remember(request, type, payload);
  if (journal_) journal_->answered(session, request, type, payload);
}

void NativeSpace::forget(std::uint64_t session) {
  if (known_.erase(session) != 0 && journal_) journal_->forgot(session);
}

Replies& NativeSpace::replies_of(std::uint64_t session) {
  Known& known = known_.try_emplace(session, memory_).first->second;
  known.here = true;
  return known.replies;
}

void NativeSpace::leave(std::uint64_t session, Clock::time_point now) {
  const auto known = known_.find(session);
  if (known == known_.end()) return;
  known->second.here = false;
  known->second.forget = now + session_linger;
  left_.emplace_back(known->second.forget, session);
  if (left_.size() > sessions_left_max) forget_oldest();
}

/// The session may have come back, or come back and left again: then a later entry counts.
void NativeSpace::forget_oldest() {
  const auto [when, session] = left_.front();
  left_.pop_front();
  const auto known = known_.find(session);
  if (known == known_.end() || known->second.here || known->second.forget != when) return;
  forget(session);
}

NativeSpaces::NativeSpaces(Host& host, const Limits& limits) : host_(host) {
  const SpaceId id = next_++;
  spaces_.emplace(id, std::make_unique<NativeSpace>(id, std::nullopt, limits));
}

NativeSpaces::~NativeSpaces() = default;

std::unique_ptr<Session> NativeSpaces::open(std::uint64_t client, Outbox& out) {
  return std::make_unique<NativeSession>(*this, client, out);
}

SpaceId NativeSpaces::add(std::uint64_t epoch, const Limits& limits) {
  const SpaceId id = next_++;
  spaces_.emplace(id, std::make_unique<NativeSpace>(id, epoch, limits));
  return id;
}

void NativeSpaces::drop(SpaceId id, std::string_view why) {
  NativeSpace* space = find(id);
  if (space == nullptr || id == first_space) return;
  // Without memory it is dropped all the same.
  space->for_each_client([&](std::uint64_t client) {
    NativeSession& session = *clients_.find(client)->second;
    attempt([&] { session.sit(nullptr, why); });
    if (session.space_ == nullptr) return;
    attempt([&] { session.leave(); });
    session.fail();
  });
  // Else the next service finds it, and nobody who asks for it.
  if (space->journal_) attempt([&] { space->journal_->dropped(); });
  space->journal_.reset();
  if (space->scheduled_) deadlines_.erase({*space->scheduled_, id});
  const auto found = spaces_.find(id);
  if (space->values.size() > keys_per_tick) {
    attempt([&] { leaving_.push_back(std::move(found->second)); });
  }
  spaces_.erase(found);
}

/// Frees a dropped namespace in parts: a million keys take a fifth of a second, for which nobody
/// should have to wait.
void NativeSpaces::dissolve() {
  if (leaving_.empty()) return;
  if (!leaving_.back()->values.dissolve(keys_per_tick)) leaving_.pop_back();
}

SpaceId NativeSpaces::add(std::uint64_t epoch, const Limits& limits, KeptSpace kept,
                          Clock::time_point now) {
  const SpaceId id = add(epoch, limits);
  NativeSpace& space = *find(id);
  space.keep(std::move(kept), now);
  touch(space);
  return id;
}

void NativeSpaces::limit(std::uint64_t client, Role role) {
  if (const auto found = clients_.find(client); found != clients_.end())
    found->second->role_ = role;
}

bool NativeSpaces::seat(std::uint64_t client, SpaceId id) {
  const auto found = clients_.find(client);
  NativeSpace* space = find(id);
  if (found == clients_.end() || (space == nullptr && id != no_space)) return false;
  found->second->seat(space);
  return true;
}

void NativeSpaces::answer(std::uint64_t client, const wire::FrameHeader& header, BytesView payload,
                          bool remember) {
  const auto found = clients_.find(client);
  if (found != clients_.end()) found->second->pass_on(header, payload, remember);
}

NativeSpace* NativeSpaces::find(SpaceId id) {
  const auto found = spaces_.find(id);
  return found == spaces_.end() ? nullptr : found->second.get();
}

void NativeSpaces::touch(NativeSpace& space) {
  if (space.touched_) return;
  touched_.push_back(space.id);
  space.touched_ = true;
}

void NativeSpaces::schedule() {
  for (const SpaceId id : touched_) {
    NativeSpace* space = find(id);
    if (space == nullptr) continue;  // Dropped since.
    space->touched_ = false;
    const auto next = space->next_deadline();
    if (next == space->scheduled_) continue;
    if (const auto before = std::exchange(space->scheduled_, std::nullopt)) {
      deadlines_.erase({*before, id});
    }
    if (next) deadlines_.emplace(*next, id);
    space->scheduled_ = next;
  }
  touched_.clear();
}

void NativeSpaces::tick(Clock::time_point now) {
  now_ = now;
  dissolve();
  schedule();
  std::vector<SpaceId> due;
  for (const auto& [when, id] : deadlines_) {
    if (when > now) break;
    due.push_back(id);
  }
  for (const SpaceId id : due) {
    NativeSpace& space = *find(id);
    space.tick(now);
    touch(space);
  }
}

std::optional<Clock::time_point> NativeSpaces::next_deadline() {
  schedule();
  if (!leaving_.empty()) return Clock::time_point{};
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

}  // namespace dlaunch::store
