#pragma once

#include "collectives/call/core/traffic.hpp"

#include <dlaunch/communicator.hpp>
#include <dlaunch/join.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch {

/// The call's place in the program; none if the standard library made the call, as std::make_unique
/// does, which knows no line of the program's.
CallSite in_program(const CallSite& site) noexcept;

/// The state that the joinables and joins of one communicator share. A rank with inputs announces
/// what it begins, and a rank without listens; both are the same all_reduce, to which every rank
/// contributes a Words. For the thread that uses the communicator.
class JoinGroup {
 public:
  static constexpr int parts_max = 1 << 16;
  static constexpr int depth_max = 8;

  /// A rank's contribution, and the sum of all: how many announce; the sum, and the sum of squares,
  /// of the announced numbers, which show whether they are equal; and for each depth of nesting how
  /// many ranks are without inputs there.
  using Words = std::array<std::uint64_t, 3 + depth_max>;
  static TensorView view_of(Words& words) noexcept {
    return {words.data(), words.size(), DType::u64};
  }

  /// The meaning of a sum of Words.
  struct News {
    int active = 0;
    int joinable = 0;  ///< The joinable that all announce.
    int part = 0;
    int deepest = 0;  ///< Deepest join in which a rank is without inputs; 0: none.
  };

  /// Lives as long as one of its joinables.
  static std::shared_ptr<JoinGroup> of(Communicator& communicator);
  explicit JoinGroup(std::shared_ptr<Communicator::State> state)
      : communicator_(std::move(state)) {}
  JoinGroup(const JoinGroup&) = delete;
  JoinGroup& operator=(const JoinGroup&) = delete;
  ~JoinGroup();

  /// A Communicator of its own, since the program's may be moved, or destroyed first.
  Communicator& communicator() noexcept { return communicator_; }

  /// Adds a joinable; its number is the lowest free one.
  int add(Joinable& joinable);
  void remove(const Joinable& joinable) noexcept;
  /// Becomes the innermost join.
  void enter(Join& join);
  void leave(const Join& join) noexcept;
  bool is_innermost(const Join& join) const noexcept {
    return !joins_.empty() && joins_.back() == &join;
  }
  int depth() const noexcept { return static_cast<int>(joins_.size()); }
  /// The innermost join that covers the joinable; null: none does.
  Join* join_of(const Joinable& joinable) const noexcept;
  /// Whether joins cover more than one joinable.
  bool has_several() const noexcept;

  Words words_of(const Joinable& joinable, int part) const noexcept;
  /// Throws Error{mismatch} where ranks announce different things.
  News news_of(const Words& sum);
  void announce(Joinable& joinable, int part);
  /// The same while the program goes on. `words` is borrowed until it is complete, then news_of
  /// reads it; the end of the join is not looked for.
  Work start_announce(const Joinable& joinable, int part, Words& words);
  /// Listens to the others' announcement, as a rank without inputs.
  News listen();
  /// The hook for an announcement; Error{mismatch} if there is no such joinable here.
  JoinHook& hook_of(int number);
  /// Lets the joinables that were announced since the last time end with the last joiner's values.
  void settle(bool is_last);

  /// To be called by all ranks, after a collective that has shown that they differ: tells what one
  /// rank did there and what another did, with the number of that collective and the call it
  /// belongs to. `kind` tells what differs; a rank that takes no side has none.
  std::string two_sides(std::optional<std::int64_t> kind, const std::string& does);

  /// Takes part in what was announced.
  void shadow(const News& news);
  bool is_shadowing() const noexcept { return shadowing_; }
  /// Sets the program's call to which the collectives of joins and joinables belong from here on:
  /// in a shadow, the join's finish().
  void come_from(const CallSite& site) noexcept;
  const CallSite& site() const noexcept { return site_; }
  /// Options of calls that are made for this, by the program's call where none are given.
  MarkedOptions mark(const Traffic& traffic, const Options& options) noexcept {
    return {*this, traffic.pack(), options};
  }
  MarkedOptions mark(const Traffic& traffic) noexcept { return mark(traffic, {.site = site_}); }
  int active() const noexcept { return active_; }
  /// The number of the communicator's last collective.
  std::uint64_t number() const noexcept;
  /// Ends all joins, because a rank has no inputs left.
  void terminate() noexcept;
  /// Tells the other ranks not to wait for this one any more.
  void give_up(const Error& why) noexcept;

 private:
  friend class MarkedOptions;
  /// Sets the purpose of the communicator's collectives from here on; returns the earlier one.
  std::uint32_t exchange_traffic(std::uint32_t traffic) noexcept;
  Words listening_words() const noexcept;
  News met(const Words& sum, std::optional<std::int64_t> mine);

  Communicator communicator_;
  std::vector<Joinable*> joinables_;  ///< By number - 1; null: free.
  std::vector<Join*> joins_;          ///< From the outermost inwards.
  int active_ = 0;                    ///< Ranks with inputs, by the last announcement.
  bool shadowing_ = false;
  CallSite site_{"", 0, ""};
  std::map<int, std::unique_ptr<JoinHook>> hooks_;  ///< By number; as long as there is a join.
  std::vector<int> announced_;                      ///< Numbers, ascending, since the last settle.
};

}  // namespace dlaunch
