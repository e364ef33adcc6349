#include "collectives/training/join_group.hpp"

#include "collectives/state.hpp"
#include "collectives/transport/traffic.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch {

using transport::Purpose;
using transport::Traffic;

namespace {

constexpr std::uint64_t code_of(int joinable, int part) {
  return static_cast<std::uint64_t>(joinable) * JoinGroup::parts_max +
         static_cast<std::uint64_t>(part);
}

Options options_of(Purpose purpose, bool shadow) {
  Options options;
  options.site = {};
  options.traffic = Traffic{purpose, shadow, 0, 0}.pack();
  return options;
}

}  // namespace

std::shared_ptr<JoinGroup> JoinGroup::of(Communicator& communicator) {
  auto& kept = communicator.state_->join_group;
  if (!kept) kept = std::make_shared<JoinGroup>(communicator);
  return kept;
}

int JoinGroup::add(Joinable& joinable) {
  auto place = std::find(joinables_.begin(), joinables_.end(), nullptr);
  if (place == joinables_.end()) {
    if (joinables_.size() >= static_cast<std::size_t>(Traffic::joinables_max)) {
      throw Error(Errc::misuse, "a communicator has at most " +
                                    std::to_string(Traffic::joinables_max) +
                                    " joinables at a time: end some of them first");
    }
    place = joinables_.insert(joinables_.end(), nullptr);
  }
  *place = &joinable;
  return static_cast<int>(place - joinables_.begin()) + 1;
}

void JoinGroup::remove(const Joinable& joinable) noexcept {
  hooks_.erase(joinable.number_);
  std::replace(joinables_.begin(), joinables_.end(), const_cast<Joinable*>(&joinable),
               static_cast<Joinable*>(nullptr));
}

void JoinGroup::enter(Join& join) {
  if (depth() == depth_max) {
    throw Error(Errc::misuse, "joins nest at most " + std::to_string(depth_max) + " deep");
  }
  if (!joins_.empty() && joins_.back()->settings_.throw_on_early_termination !=
                             join.settings_.throw_on_early_termination) {
    throw Error(Errc::misuse,
                "a join within a join ends early exactly if the outer one does: give both the same "
                "throw_on_early_termination");
  }
  joins_.push_back(&join);
}

bool JoinGroup::has_several() const noexcept {
  const Joinable* one = nullptr;
  for (const Join* join : joins_) {
    for (const Joinable* each : join->joinables_) {
      if (one != nullptr && one != each) return true;
      one = each;
    }
  }
  return false;
}

void JoinGroup::leave(const Join& join) noexcept {
  std::erase(joins_, &join);
  if (!joins_.empty()) return;
  hooks_.clear();
  announced_.clear();
  active_ = 0;
  shadowing_ = false;
}

Join* JoinGroup::join_of(const Joinable& joinable) const noexcept {
  const auto found = std::find_if(joins_.rbegin(), joins_.rend(),
                                  [&](const Join* join) { return join->covers(joinable); });
  return found == joins_.rend() ? nullptr : *found;
}

JoinGroup::Words JoinGroup::words_of(const Joinable& joinable, int part) const noexcept {
  const std::uint64_t code = code_of(joinable.number_, part);
  return {1, code, code * code};
}

JoinGroup::Words JoinGroup::listening_words() const noexcept {
  Words words{};
  words[static_cast<std::size_t>(2 + depth())] = 1;
  return words;
}

JoinGroup::News JoinGroup::news_of(const Words& sum) {
  News news;
  for (int depth = 1; depth <= depth_max; ++depth) {
    if (sum[static_cast<std::size_t>(2 + depth)] != 0) news.deepest = depth;
  }
  news.active = static_cast<int>(sum[0]);
  if (sum[0] == 0) return news;
  // Equal numbers, and only those, have n times the sum of squares equal to the square of the sum.
  const std::uint64_t code = sum[1] / sum[0];
  if (code * sum[0] != sum[1] || sum[0] * sum[2] != sum[1] * sum[1]) {
    throw Error(Errc::mismatch,
                "join: the ranks with inputs began different things: each of them uses its "
                "joinables in the same order");
  }
  news.joinable = static_cast<int>(code / parts_max);
  news.part = static_cast<int>(code % parts_max);
  active_ = news.active;
  const auto place = std::lower_bound(announced_.begin(), announced_.end(), news.joinable);
  if (place == announced_.end() || *place != news.joinable) {
    announced_.insert(place, news.joinable);
  }
  return news;
}

void JoinGroup::announce(Joinable& joinable, int part) {
  Words words = words_of(joinable, part);
  communicator_.all_reduce(view_of(words), ReduceOp::sum, options_of(Purpose::present, false));
  const News news = news_of(words);
  if (news.active < communicator_.size() && joins_.back()->settings_.throw_on_early_termination) {
    terminate();
    throw EarlyTermination(
        "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
  }
}

Work JoinGroup::start_announce(const Joinable& joinable, int part, Words& words) {
  words = words_of(joinable, part);
  return communicator_.start_all_reduce(view_of(words), ReduceOp::sum,
                                        options_of(Purpose::present, false));
}

JoinGroup::News JoinGroup::listen() {
  Words words = listening_words();
  communicator_.all_reduce(view_of(words), ReduceOp::sum, options_of(Purpose::present, true));
  return news_of(words);
}

JoinHook& JoinGroup::hook_of(int number) {
  const auto place = static_cast<std::size_t>(number) - 1;
  if (place >= joinables_.size() || joinables_[place] == nullptr) {
    throw Error(Errc::mismatch, "join: other ranks use joinable " + std::to_string(number) +
                                    " of the communicator, which this rank has not made");
  }
  auto& hook = hooks_[number];
  if (!hook) hook = joinables_[place]->join_hook();
  return *hook;
}

void JoinGroup::shadow(const News& news) {
  struct Shadowing {
    bool& flag;
    explicit Shadowing(bool& set) : flag(set) { flag = true; }
    ~Shadowing() { flag = false; }
  };
  JoinHook& hook = hook_of(news.joinable);
  const Shadowing shadowing(shadowing_);
  hook.main_hook(news.part);
}

void JoinGroup::settle(bool is_last) {
  if (announced_.empty()) return;
  std::int64_t last = is_last ? communicator_.rank() : -1;
  communicator_.all_reduce(dlaunch::view_of(last), ReduceOp::max,
                           options_of(Purpose::last_joiner, false));
  for (const int number : std::exchange(announced_, {})) {
    hook_of(number).post_hook(static_cast<int>(last));
  }
}

void JoinGroup::terminate() noexcept {
  while (!joins_.empty()) joins_.back()->end();
}

void JoinGroup::give_up(const Error& why) noexcept { communicator_.state_->give_up(why); }

}  // namespace dlaunch
