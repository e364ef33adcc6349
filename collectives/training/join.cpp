#include "collectives/call/call.hpp"
#include "collectives/call/core/traffic.hpp"
#include "collectives/training/join_group.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <utility>

namespace dlaunch {
namespace {

/// The number of shadowed iterations after which this rank says so.
constexpr long shadows_max_silent = 1000;

Joinable& first_of(std::span<Joinable* const> joinables) {
  for (Joinable* const joinable : joinables) {
    if (joinable == nullptr) throw Error(Errc::misuse, "join: a joinable is a null pointer");
    if (&joinable->communicator() != &joinables.front()->communicator()) {
      throw Error(Errc::misuse, "join: all joinables of one join have the same communicator");
    }
    if (std::count(joinables.begin(), joinables.end(), joinable) > 1) {
      throw Error(Errc::misuse, "join: a joinable is listed twice");
    }
  }
  if (joinables.empty()) throw Error(Errc::misuse, "join: there is nothing to join");
  return *joinables.front();
}

}  // namespace

EarlyTermination::EarlyTermination(const std::string& sentence) : Error(Errc::aborted, sentence) {}
EarlyTermination::~EarlyTermination() = default;

JoinHook::~JoinHook() = default;

// ---- What makes collectives in each iteration. ----

Joinable::Joinable(Communicator& communicator)
    : group_(JoinGroup::of(communicator)),
      communicator_(group_->communicator()),
      number_(group_->add(*this)) {}

Joinable::~Joinable() { group_->remove(*this); }

bool Joinable::is_joined() const noexcept { return group_->join_of(*this) != nullptr; }

bool Joinable::is_one_of_several() const noexcept { return is_joined() && group_->has_several(); }

void Joinable::announce(int part, const CallSite& site) {
  if (part < 0 || part >= JoinGroup::parts_max) {
    throw Error(Errc::misuse, "an iteration's parts are numbered from 0 to " +
                                  std::to_string(JoinGroup::parts_max - 1));
  }
  Join* const join = group_->join_of(*this);
  if (join == nullptr) return;
  ++join->announced_;
  group_->come_from(site);
  group_->announce(*this, part);
}

MarkedOptions Joinable::traffic(const Options& options) const {
  return group_->mark({Purpose::joinable, group_->is_shadowing(), number_, 0}, options);
}

int Joinable::divisor() const noexcept {
  const Join* const join = group_->join_of(*this);
  const bool by_active = join != nullptr && !join->settings_.divide_by_initial_world_size;
  return by_active ? group_->active() : communicator_.size();
}

// ---- The guard. ----

Join::Join(Joinable& joinable, JoinSettings settings)
    : Join(std::array<Joinable*, 1>{&joinable}, std::move(settings)) {}

Join::Join(std::span<Joinable* const> joinables, JoinSettings settings)
    : joinables_(joinables.begin(), joinables.end()),
      settings_(std::move(settings)),
      group_(first_of(joinables).group_),
      communicator_(joinables.front()->communicator()) {
  group_->enter(*this);
}

Join::~Join() {
  if (stage_ == Stage::ended) return;
  group_->give_up(Error(Errc::aborted, "rank " + std::to_string(communicator_.rank()) +
                                           " left a join without finish(), as an exception does, "
                                           "after it had announced " +
                                           std::to_string(announced_) + " iterations" +
                                           place_text(group_->site())));
  end();
}

bool Join::covers(const Joinable& joinable) const noexcept {
  return std::find(joinables_.begin(), joinables_.end(), &joinable) != joinables_.end();
}

void Join::end() noexcept {
  stage_ = Stage::ended;
  group_->leave(*this);
}

void Join::finish(const CallSite& site) {
  if (stage_ != Stage::open || !group_->is_innermost(*this)) {
    throw Error(Errc::misuse, stage_ == Stage::open
                                  ? "finish: the join within this one is not finished"
                                  : "finish: this join is finished");
  }
  stage_ = Stage::finishing;
  group_->come_from(site);
  try {
    shadow();
  } catch (const EarlyTermination&) {
    throw;
  } catch (const std::exception& failure) {
    group_->give_up(Error(Errc::aborted,
                          "rank " + std::to_string(communicator_.rank()) +
                              " failed while it shadowed the others in a join: " + failure.what()));
    end();
    throw;
  }
  end();
}

void Join::shadow() {
  bool is_last = true;
  for (;;) {
    const JoinGroup::News news = group_->listen();
    if (news.active > 0) {
      if (settings_.throw_on_early_termination) {
        const int rank = communicator_.rank();
        group_->terminate();
        throw EarlyTermination("Rank " + std::to_string(rank) + " exhausted all inputs.");
      }
      is_last = false;
      group_->shadow(news);
      warn_once();
      continue;
    }
    group_->settle(is_last);
    // A rank in an inner join goes on, and this one may be shadowing again.
    if (news.deepest == group_->depth()) return;
    is_last = true;
  }
}

void Join::warn_once() {
  if (++shadowed_ != shadows_max_silent + 1) return;
  const std::string sentence =
      "dlaunch: rank " + std::to_string(communicator_.rank()) + " ran out of inputs more than " +
      std::to_string(shadows_max_silent) +
      " iterations ago and only shadows the other ranks since: divide the inputs more evenly";
  if (settings_.warn) {
    settings_.warn(sentence);
  } else {
    std::fprintf(stderr, "%s\n", sentence.c_str());
  }
}

void Join::over(std::span<Joinable* const> joinables, const std::function<void()>& loop,
                JoinSettings settings, const CallSite& site) {
  Join join(joinables, std::move(settings));
  try {
    loop();
  } catch (const EarlyTermination&) {
    throw;
  } catch (const std::exception& failure) {
    if (join.stage_ != Stage::ended) {
      join.group_->give_up(
          Error(Errc::aborted, "rank " + std::to_string(join.communicator_.rank()) +
                                   " left a join by an exception: " + std::string(failure.what())));
    }
    throw;
  }
  join.finish(site);
}

}  // namespace dlaunch
