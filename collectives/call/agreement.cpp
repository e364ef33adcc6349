#include "collectives/call/agreement.hpp"

#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::Op;

/// How long the store is waited for at a time. In between, this rank looks whether ranks were lost,
/// and whether it was told to give up.
constexpr Clock::duration slice_first = 500us;
constexpr Clock::duration slice_max = 20ms;

class Meeting {
 public:
  Meeting(const AgreementSetting& setting, Op op, std::uint64_t number)
      : setting_(setting),
        call_{setting.group, op, number, setting.site},
        until_(deadline_after(setting.timeout)),
        ranks_(static_cast<std::size_t>(setting.group.size())) {}

  Agreement run(std::uint32_t flags) {
    transport::Links& mesh = setting_.mesh;
    mesh.store().set(key(std::to_string(setting_.group.rank)),
                     encode(Brought{call_.op, flags, place_of(setting_.site)}));
    auto slice = slice_first;
    for (;;) {
      look_around();
      if (setting_.aborted) {
        throw CallError(Errc::aborted,
                        call_.label() + place_text(setting_.site) + ": " +
                            aborted_text(setting_.group.rank, setting_.aborted.site()));
      }
      const auto now = Clock::now();
      const bool late = now >= until_, decides = late || is_lowest_living();
      const auto until = std::min(until_, now + slice);
      if (decides && (late || all_come(until))) conclude(late);
      if (const auto outcome = find_outcome(decides ? now : until)) {
        return taken(*outcome);
      }
      slice = std::min(slice * 2, slice_max);
    }
  }

 private:
  /// Looks at the mesh. Its lock is never held while the store is waited for, so that other threads
  /// go on.
  void look_around() {
    transport::Links& mesh = setting_.mesh;
    const auto lock = mesh.lock();
    const transport::Caller caller(mesh.progress_lock());
    // The step also sends our news: the others may still have to hear why this rank is here.
    mesh.step(Clock::now(), false);
    for (int rank = 0; rank < setting_.group.size(); ++rank) {
      ranks_[static_cast<std::size_t>(rank)].is_lost = is_gone(rank);
    }
  }

  std::string key(const std::string& part, std::uint64_t number) const {
    char prefix[64];
    std::snprintf(prefix, sizeof prefix, "agree/%x/%llx/%llu/", setting_.mesh.generation(),
                  static_cast<unsigned long long>(setting_.group.id),
                  static_cast<unsigned long long>(number));
    return prefix + part;
  }
  std::string key(const std::string& part) const { return key(part, call_.number); }

  std::optional<Bytes> find_outcome(Clock::time_point until) {
    try {
      return setting_.mesh.store().wait(key("outcome"), until);
    } catch (const Error& error) {
      if (error.errc() != Errc::timeout) throw;
      return std::nullopt;
    }
  }

  bool is_lost(int rank) const { return ranks_[static_cast<std::size_t>(rank)].is_lost; }
  /// Whether a rank is gone. If nobody reports losses, a rank that ended its connection counts as
  /// lost.
  bool is_gone(int rank) const {
    const transport::Links& mesh = setting_.mesh;
    const int world_rank = setting_.group.world_rank(rank);
    if (world_rank == mesh.rank()) return false;
    if (mesh.loss_of(world_rank) != nullptr) return true;
    return !mesh.hears_of_losses() && mesh.end_of(world_rank) != nullptr;
  }
  bool is_lowest_living() const {
    for (int rank = 0; rank < setting_.group.rank; ++rank) {
      if (!is_lost(rank)) return false;
    }
    return true;
  }

  /// Waits for all ranks that live, as far as is known.
  bool all_come(Clock::time_point until) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < setting_.group.size(); ++rank) {
      if (!is_lost(rank)) keys.push_back(key(std::to_string(rank)));
    }
    try {
      wait_all(setting_.mesh.store(), keys, until);
      return true;
    } catch (const Error& error) {
      if (error.errc() != Errc::timeout) throw;
      return false;
    }
  }

  /// Looks for the contributions of ranks that have not been seen to come.
  void look() {
    std::vector<int> awaited;
    std::vector<std::string> keys;
    for (int rank = 0; rank < setting_.group.size(); ++rank) {
      if (ranks_[static_cast<std::size_t>(rank)].brought || is_lost(rank)) continue;
      awaited.push_back(rank);
      keys.push_back(key(std::to_string(rank)));
    }
    if (keys.empty()) return;
    const auto found = multi_get(setting_.mesh.store(), keys);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i]) continue;
      const auto brought = decode_brought(*found[i]);
      if (!brought) refuse(keys[i]);
      ranks_[static_cast<std::size_t>(awaited[i])].brought = *brought;
    }
  }

  /// Writes the outcome down if everyone has come or is lost, or if it is `late`.
  void conclude(bool late) {
    look();
    const auto outcome = dlaunch::conclude(ranks_, late, setting_.group.rank, setting_.timeout);
    if (!outcome) return;
    setting_.mesh.store().compare_set(key("outcome"), std::nullopt, encode(*outcome));
    forget_previous();
  }

  /// Removes the previous agreement: a rank that is here has read its outcome.
  void forget_previous() {
    if (call_.number == 1) return;
    auto& store = setting_.mesh.store();
    for (int rank = 0; rank < setting_.group.size(); ++rank) {
      store.erase(key(std::to_string(rank), call_.number - 1));
    }
    store.erase(key("outcome", call_.number - 1));
  }

  Agreement taken(BytesView written) const {
    const auto outcome = decode_outcome(written, setting_.group.size());
    if (!outcome) refuse(key("outcome"));
    if (const auto failure = failure_of(call_, *outcome)) throw *failure;
    return std::get<Agreement>(*outcome);
  }
  [[noreturn]] void refuse(const std::string& where) const {
    throw CallError(Errc::internal, call_.label() + ": what the store holds under '" + where +
                                        "' is not of an agreement: use one version of dlaunch for "
                                        "all ranks, and no keys that begin with agree/");
  }

  const AgreementSetting& setting_;
  const AgreementCall call_;
  const Clock::time_point until_;
  std::vector<Attendance> ranks_;  ///< The ranks as of the last look.
};

}  // namespace

Agreement agree_among_living(const AgreementSetting& setting, Op op, std::uint64_t number,
                             std::uint32_t flags) {
  return Meeting(setting, op, number).run(flags);
}

}  // namespace dlaunch
