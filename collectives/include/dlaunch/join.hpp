#pragma once

#include <dlaunch/communicator.hpp>
#include <dlaunch/error.hpp>
#include <dlaunch/export.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dlaunch {

class Joinable;
class JoinGroup;

/// How a Join treats ranks that have no inputs left. Nested joins agree on the second.
struct JoinSettings {
  /// What a sum of gradients is divided by: the communicator's size, or else the number of ranks
  /// that still have inputs.
  bool divide_by_initial_world_size = true;
  /// As soon as one rank has no inputs left, all throw EarlyTermination.
  bool throw_on_early_termination = false;
  /// Told once, with a sentence, by a rank that has shadowed very many iterations of the others.
  /// Empty: the sentence goes to stderr.
  std::function<void(const std::string& sentence)> warn = nullptr;
};

/// Not a failure: what ends a loop where JoinSettings::throw_on_early_termination asks for it, on
/// all ranks in the same iteration. All joins of the communicator are over then; it stays usable.
class DLAUNCH_API EarlyTermination : public Error {
 public:
  explicit EarlyTermination(const std::string& sentence);
  ~EarlyTermination() override;
};

/// What a rank without inputs does for one joinable while others still have some. Called on the
/// thread that is in Join::finish; an exception reaches the other ranks and ends the join.
class DLAUNCH_API JoinHook {
 public:
  virtual ~JoinHook();
  /// Makes, with neutral values, the collectives that the other ranks make after
  /// Joinable::announce(part).
  virtual void main_hook(int part) = 0;
  /// When nobody has inputs left: lets all ranks end with what `last_joiner` has, the highest of
  /// the ranks that had inputs longest. Called on all ranks, the joinables in the order in which
  /// they were made; those of which no iteration was made since the last time are left out.
  virtual void post_hook(int last_joiner) = 0;
};

/// Options of the collectives that a joinable makes, which never meet one of the program's own, or
/// of another joinable, by mistake. As long as it lives, all collectives of this rank on the
/// communicator are marked as the joinable's: in an argument, for that one call. It ends before the
/// joinable does, on the same thread.
class [[nodiscard, gnu::visibility("default")]] MarkedOptions {
 public:
  MarkedOptions(const MarkedOptions&) = delete;
  MarkedOptions& operator=(const MarkedOptions&) = delete;
  ~MarkedOptions();

  operator Options() const noexcept { return options_; }
  operator BarrierOptions() const noexcept { return options_; }
  operator ReduceOptions() const noexcept { return options_; }

 private:
  friend class JoinGroup;
  MarkedOptions(JoinGroup & group, std::uint32_t traffic, const Options& options) noexcept;

  JoinGroup& group_;
  Options options_;
  std::uint32_t before_;
};

/// Something that makes collectives of its own in each iteration, so that ranks without inputs must
/// take part: a GradientReducer, a sharded optimizer. The communicator it was made with may be
/// moved meanwhile; once that is destroyed, calls throw Error{aborted}. Ranks make (and end) the
/// joinables of a communicator in the same order: that is how they know them from each other,
/// whatever the order and nesting in which they are joined and used. For the thread that uses the
/// communicator.
class DLAUNCH_API Joinable {
 public:
  Joinable(const Joinable&) = delete;
  Joinable& operator=(const Joinable&) = delete;
  virtual ~Joinable();

  /// Made once in each outermost Join, when it is first needed.
  virtual std::unique_ptr<JoinHook> join_hook() = 0;

  Communicator& communicator() const noexcept { return communicator_; }
  /// Between the first and the last of what a Join covers, as one of its joinables.
  bool is_joined() const noexcept;

 protected:
  /// Error{misuse} beyond 1023 on one communicator.
  explicit Joinable(Communicator& communicator);

  /// The first thing in each iteration: tells ranks without inputs to take part in what follows, by
  /// main_hook(part). Does nothing where no Join covers this joinable. An iteration may be
  /// announced in several parts, from 0 to 65535. Throws EarlyTermination where a rank has no
  /// inputs left and the join is to end then. `site` is what other ranks are told of this call.
  void announce(int part = 0, const CallSite& site = CallSite::here());
  /// For the collectives of this joinable, in its iterations as in its hooks:
  /// `communicator().broadcast(values, 0, traffic())`.
  MarkedOptions traffic(const Options& options = {}) const;
  /// By what sums of gradients are divided: see JoinSettings.
  int divisor() const noexcept;
  /// Several joinables are joined, which may take turns within an iteration.
  bool is_one_of_several() const noexcept;

 private:
  friend class GradientReducer;
  friend class Join;
  friend class JoinGroup;
  std::shared_ptr<JoinGroup> group_;
  Communicator& communicator_;  ///< The group's own face of it.
  int number_ = 0;
};

/// Covers a loop whose ranks may have different numbers of inputs:
///
///     dlaunch::Join join(reducer);
///     while (more()) step();
///     join.finish();
///
/// A rank that has no inputs left takes part in what the others do, by the joinables' hooks, until
/// nobody has any; then all of them go on together. A Join that ends without finish(), as by an
/// exception, breaks the communicator: the other ranks get Error{aborted} from what they are in, or
/// their next call. Joins nest, and may then cover different joinables on different ranks; the
/// inner ones end first. Collectives of the program's own do not belong into a loop that ranks
/// leave at different times: they meet the shadow of another, and all ranks get Error{mismatch}
/// that shows both.
///
/// For the thread that uses the communicator; it costs a small all_reduce for each announcement.
/// Calls that a rank makes as a shadow are shown as its call of finish, with that one's `site`.
class DLAUNCH_API Join {
 public:
  explicit Join(Joinable& joinable, JoinSettings settings = {});
  /// All of one communicator, each of them once.
  explicit Join(std::span<Joinable* const> joinables, JoinSettings settings = {});
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;
  ~Join();

  /// This rank has no inputs left: returns when no rank has, and post hooks are done. Throws what
  /// the hooks throw, and EarlyTermination where the settings ask for it.
  void finish(const CallSite& site = CallSite::here());

  /// The guard around `loop`. If it throws, the other ranks are told what.
  static void over(std::span<Joinable* const> joinables, const std::function<void()>& loop,
                   JoinSettings settings = {}, const CallSite& site = CallSite::here());

 private:
  friend class Joinable;
  friend class JoinGroup;
  enum class Stage { open, finishing, ended };

  bool covers(const Joinable& joinable) const noexcept;
  void shadow();
  void warn_once();
  void end() noexcept;

  std::vector<Joinable*> joinables_;
  JoinSettings settings_;
  std::shared_ptr<JoinGroup> group_;
  Communicator& communicator_;
  Stage stage_ = Stage::open;
  long announced_ = 0;  ///< By this rank.
  long shadowed_ = 0;
};

}  // namespace dlaunch
