#include "collectives/training/join_group.hpp"

#include "collectives/communicator/state.hpp"

#include <dlaunch/tree.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

namespace dlaunch {

namespace {

constexpr std::uint64_t code_of(int joinable, int part) {
  return static_cast<std::uint64_t>(joinable) * JoinGroup::parts_max +
         static_cast<std::uint64_t>(part);
}

}  // namespace

CallSite in_program(const CallSite& site) noexcept {
  const bool in_library =
      std::string_view(site.file).find("/include/c++/") != std::string_view::npos;
  return in_library ? CallSite{"", 0, ""} : site;
}

void JoinGroup::come_from(const CallSite& site) noexcept { site_ = in_program(site); }

MarkedOptions::MarkedOptions(JoinGroup& group, std::uint32_t traffic,
                             const Options& options) noexcept
    : group_(group), options_(options), before_(group.exchange_traffic(traffic)) {}
MarkedOptions::~MarkedOptions() { group_.exchange_traffic(before_); }

std::uint32_t JoinGroup::exchange_traffic(std::uint32_t traffic) noexcept {
  return communicator_.state_->traffic.exchange(traffic, std::memory_order_relaxed);
}

std::shared_ptr<JoinGroup> JoinGroup::of(Communicator& communicator) {
  auto group = communicator.state_->join_group.lock();
  if (!group) {
    group = std::make_shared<JoinGroup>(communicator.state_);
    communicator.state_->join_group = group;
  }
  return group;
}

/// The group's end does not end the communicator.
JoinGroup::~JoinGroup() {
  if (!communicator_.state_->is_forked()) communicator_.state_.reset();
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

namespace {

constexpr const char* began_different =
    "join: the ranks with inputs began different things, and each of them uses its joinables in "
    "the same order";

/// Whether all announce one number: only for equal numbers is n times the sum of squares the square
/// of the sum.
bool is_one_thing(const JoinGroup::Words& sum) {
  const std::uint64_t count = sum[0], code = count == 0 ? 0 : sum[1] / count;
  return code * count == sum[1] && count * sum[2] == sum[1] * sum[1];
}

}  // namespace

JoinGroup::News JoinGroup::news_of(const Words& sum) {
  News news;
  for (int depth = 1; depth <= depth_max; ++depth) {
    if (sum[static_cast<std::size_t>(2 + depth)] != 0) news.deepest = depth;
  }
  news.active = static_cast<int>(sum[0]);
  if (sum[0] == 0) return news;
  if (!is_one_thing(sum)) throw Error(Errc::mismatch, began_different + place_text(site_));
  const std::uint64_t code = sum[1] / sum[0];
  news.joinable = static_cast<int>(code / parts_max);
  news.part = static_cast<int>(code % parts_max);
  active_ = news.active;
  const auto place = std::lower_bound(announced_.begin(), announced_.end(), news.joinable);
  if (place == announced_.end() || *place != news.joinable) {
    announced_.insert(place, news.joinable);
  }
  return news;
}

std::string JoinGroup::two_sides(std::optional<std::int64_t> kind, const std::string& does) {
  const std::string here = " in " + std::string(shadowing_ ? "join's shadow" : "join's") +
                           " all_reduce #" + std::to_string(number()) + place_text(site_);
  const auto all = communicator_.all_gather_objects(
      kind ? Tree(Tree::List{Tree(*kind), Tree(does + here)}) : Tree(),
      mark({Purpose::present, false, 0, 0}));
  const Tree* first = nullptr;
  std::string told;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == Tree() || (first != nullptr && (*first)[0] == all[rank][0])) continue;
    const std::string side = "rank " + std::to_string(rank) + " " + all[rank][1].as<std::string>();
    if (first != nullptr) return told + ", but " + side;
    first = &all[rank];
    told = side;
  }
  return told;
}

/// All ranks notice a difference in the same call, so they can tell each other more.
JoinGroup::News JoinGroup::met(const Words& sum, std::optional<std::int64_t> mine) {
  if (is_one_thing(sum)) return news_of(sum);
  const auto joinable = mine.value_or(0) / parts_max, part = mine.value_or(0) % parts_max;
  throw Error(Errc::mismatch, std::string(began_different) + ": " +
                                  two_sides(mine, "begins part " + std::to_string(part) +
                                                      " of joinable " + std::to_string(joinable)));
}

void JoinGroup::announce(Joinable& joinable, int part) {
  Words words = words_of(joinable, part);
  const auto mine = static_cast<std::int64_t>(words[1]);
  communicator_.all_reduce(view_of(words), ReduceOp::sum, mark({Purpose::present, false, 0, 0}));
  const News news = met(words, mine);
  if (news.active < communicator_.size() && joins_.back()->settings_.throw_on_early_termination) {
    terminate();
    throw EarlyTermination(
        "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
  }
}

Work JoinGroup::start_announce(const Joinable& joinable, int part, Words& words) {
  words = words_of(joinable, part);
  return communicator_.start_all_reduce(view_of(words), ReduceOp::sum,
                                        mark({Purpose::present, false, 0, 0}));
}

JoinGroup::News JoinGroup::listen() {
  Words words = listening_words();
  communicator_.all_reduce(view_of(words), ReduceOp::sum, mark({Purpose::present, true, 0, 0}));
  return met(words, std::nullopt);
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
  communicator_.all_reduce(last, ReduceOp::max, mark({Purpose::last_joiner, false, 0, 0}));
  for (const int number : std::exchange(announced_, {})) {
    hook_of(number).post_hook(static_cast<int>(last));
  }
}

std::uint64_t JoinGroup::number() const noexcept { return communicator_.state_->sequence; }

void JoinGroup::terminate() noexcept {
  while (!joins_.empty()) joins_.back()->end();
}

void JoinGroup::give_up(const Error& why) noexcept { communicator_.state_->give_up(why); }

}  // namespace dlaunch
