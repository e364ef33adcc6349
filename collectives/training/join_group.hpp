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

/// The call in the program; none where it was made by the standard library for it, as by
/// std::make_unique, which knows no line of the program's.
CallSite in_program(const CallSite& site) noexcept;

/// What the joinables and joins of one communicator have in common. A rank with inputs announces
/// what it begins, one without listens; both is the same all_reduce, in which every rank gives a
/// Words. For the thread that uses the communicator.
class JoinGroup {
 public:
  static constexpr int parts_max = 1 << 16;
  static constexpr int depth_max = 8;

  /// A rank's contribution, and the sum of all: how many announce; the sum, and the sum of squares,
  /// of what they announce, which show whether it is the same; and for each depth of nesting how
  /// many are without inputs there.
  using Words = std::array<std::uint64_t, 3 + depth_max>;
  static TensorView view_of(Words& words) noexcept {
    return {words.data(), words.size(), DType::u64};
  }

  /// What the sum of Words says.
  struct News {
    int active = 0;
    int joinable = 0;  ///< All of these announce it.
    int part = 0;
    int deepest = 0;  ///< Join that somebody is in without inputs; 0: nobody.
  };

  /// Lives as long as one of its joinables.
  static std::shared_ptr<JoinGroup> of(Communicator& communicator);
  explicit JoinGroup(std::shared_ptr<Communicator::State> state)
      : communicator_(std::move(state)) {}
  JoinGroup(const JoinGroup&) = delete;
  JoinGroup& operator=(const JoinGroup&) = delete;
  ~JoinGroup();

  /// A face of its own, since the program's may be moved, or destroyed first.
  Communicator& communicator() noexcept { return communicator_; }

  /// A joinable's number: the lowest one that is free.
  int add(Joinable& joinable);
  void remove(const Joinable& joinable) noexcept;
  /// Becomes the innermost join.
  void enter(Join& join);
  void leave(const Join& join) noexcept;
  bool is_innermost(const Join& join) const noexcept {
    return !joins_.empty() && joins_.back() == &join;
  }
  int depth() const noexcept { return static_cast<int>(joins_.size()); }
  /// The innermost one that covers it; null: none does.
  Join* join_of(const Joinable& joinable) const noexcept;
  /// Joins cover more than one joinable.
  bool has_several() const noexcept;

  Words words_of(const Joinable& joinable, int part) const noexcept;
  /// Throws Error{mismatch} where ranks announce different things.
  News news_of(const Words& sum);
  void announce(Joinable& joinable, int part);
  /// The same while the program goes on. `words` is borrowed until it is complete, then news_of
  /// reads it; the end of the join is not looked for.
  Work start_announce(const Joinable& joinable, int part, Words& words);
  /// What the others announce, to a rank without inputs.
  News listen();
  /// The hook of what was announced; Error{mismatch} if there is no such joinable here.
  JoinHook& hook_of(int number);
  /// Those announced since the last time end with what the last joiner has.
  void settle(bool is_last);

  /// After a collective that has shown all ranks that they differ, on all of them: what one did
  /// there, and another that did something else, with the number of that collective and the call
  /// it belongs to. `kind` tells what differs; ranks that take no side have none.
  std::string two_sides(std::optional<std::int64_t> kind, const std::string& does);

  /// Takes part in what was announced.
  void shadow(const News& news);
  bool is_shadowing() const noexcept { return shadowing_; }
  /// The program's call which the collectives of joins and joinables belong to from here on: in a
  /// shadow the join's finish().
  void come_from(const CallSite& site) noexcept;
  const CallSite& site() const noexcept { return site_; }
  /// Options of calls that are made for this, by the program's call where none are given.
  MarkedOptions mark(const Traffic& traffic, const Options& options) noexcept {
    return {*this, traffic.pack(), options};
  }
  MarkedOptions mark(const Traffic& traffic) noexcept {
    return mark(traffic, {.site = site_});
  }
  int active() const noexcept { return active_; }
  /// The number of the communicator's last collective.
  std::uint64_t number() const noexcept;
  /// All joins are over: a rank has no inputs left, and that ends them.
  void terminate() noexcept;
  /// The other ranks are not to wait for this one any more.
  void give_up(const Error& why) noexcept;

 private:
  friend class MarkedOptions;
  /// What the communicator's collectives are for from here on; returns what they were for.
  std::uint32_t exchange_traffic(std::uint32_t traffic) noexcept;
  Words listening_words() const noexcept;
  News met(const Words& sum, std::optional<std::int64_t> mine);

  Communicator communicator_;
  std::vector<Joinable*> joinables_;  ///< By number - 1; null: free.
  std::vector<Join*> joins_;          ///< From the outermost inwards.
  int active_ = 0;                    ///< Ranks with inputs, as of the last announcement.
  bool shadowing_ = false;
  CallSite site_{"", 0, ""};
  std::map<int, std::unique_ptr<JoinHook>> hooks_;  ///< By number; as long as there is a join.
  std::vector<int> announced_;                      ///< Numbers, ascending, since the last settle.
};

}  // namespace dlaunch
