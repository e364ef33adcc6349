#include "rendezvous/rounds/gathering.hpp"

#include "rendezvous/rounds/texts.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

using namespace std::chrono_literals;

/// The times left at which a last call is announced again.
constexpr std::array countdown{30s, 20s, 10s, 5s};
/// Up to this number of nodes, each newcomer is announced at once.
constexpr int nodes_told_at_once = 16;
constexpr auto telling_interval = 1s;

/// "2 of 4 nodes", "3 of 2 to 4 nodes".
std::string count_text(const Nodes& nodes, const JobRules& rules) {
  return std::to_string(nodes.count()) + " of " + nodes_text(rules);
}

}  // namespace

Gathering::Gathering(Legacy of_epoch, std::string again_for, std::optional<RestartPause> pause,
                     const JobRules& rules, Clock::time_point now)
    : again_for_(std::move(again_for)), pause_(std::move(pause)) {
  legacy_ = std::move(of_epoch);
  const auto& loss = legacy_.first_loss;
  join_deadline_ = deadline_after(rules.join_timeout, loss ? loss->at : now);
}

Gathering::Step Gathering::step(const Nodes& nodes, const JobRules& rules, Clock::time_point now) {
  if (legacy_.leaving_until && *legacy_.leaving_until <= now) legacy_.leaving_until.reset();
  if (pause_ && pause_->until <= now) pause_.reset();
  if (nodes.empty()) {
    last_call_.reset();
    if (first()) join_deadline_.reset();
    return join_deadline_ && *join_deadline_ <= now ? Step::give_up : Step::idle;
  }
  if (!join_deadline_) join_deadline_ = deadline_after(rules.join_timeout, now);
  // A node with a broken connection does not count as present: it will soon be back, or lost.
  const int present = nodes.count() - nodes.broken();
  const bool held = legacy_.leaving_until || pause_;
  if (present >= rules.nodes_max && !held) return Step::close;
  if (nodes.count() < rules.nodes_min) {
    last_call_.reset();
    return *join_deadline_ <= now ? Step::give_up : Step::wait;
  }
  const bool calls = rules.elastic() && first();
  if (calls && !last_call_) last_call_ = deadline_after(rules.last_call, now);
  const bool complete = nodes.broken() == 0 && (!calls || *last_call_ <= now);
  return complete && !held ? Step::close : Step::wait;
}

Finish Gathering::given_up(const Nodes& nodes, const JobRules& rules) const {
  const bool for_loss = !first() && legacy_.first_loss;
  std::string text = for_loss ? legacy_.first_loss->reason + "; " : "";
  const std::string within = " within " + duration_text(rules.join_timeout);
  if (nodes.empty()) {
    text += "no node came back" + within;
  } else {
    text += "only " + count_text(nodes, rules) + (first() ? " came" : " were there") + within +
            ": " + nodes.names() + nodes.missing_ranks(rules);
  }
  if (for_loss) return Finish::for_lost_node(std::move(text));
  return {exit_code::ranks_missing, std::nullopt, std::move(text)};
}

std::array<std::optional<Clock::time_point>, 5> Gathering::deadlines(const Nodes& nodes,
                                                                     const JobRules& rules) const {
  std::array due{join_deadline_, last_call_, legacy_.leaving_until, telling_due_,
                 pause_ ? std::optional(pause_->until) : std::nullopt};
  if (nodes.count() >= rules.nodes_min) due[0].reset();
  // Nodes with broken connections are waited for, until their leases end.
  if (nodes.broken() > 0) due[1].reset();
  return due;
}

void Gathering::forgive(Clock::duration slept) {
  for (auto* deadline : {&join_deadline_, &last_call_, &legacy_.leaving_until}) {
    if (*deadline) *deadline = deadline_after(slept, **deadline);
  }
  // The pause before a restart ends with its time, whatever nodes are here.
}

std::string Gathering::wait_text(const Nodes& nodes, const JobRules& rules,
                                 Clock::time_point now) const {
  const bool enough = nodes.count() >= rules.nodes_min;
  if (legacy_.leaving_until && enough) {
    return "; waiting " + rest_text(*legacy_.leaving_until - now) +
           " for others that may leave, too";
  }
  if (enough && (!last_call_ || *last_call_ <= now)) {
    return "; waiting for broken connections to come back";
  }
  if (last_call_) return "; last call in " + rest_text(std::max(*last_call_ - now, 0ns));
  if (!join_deadline_ || *join_deadline_ == Clock::time_point::max()) return "; waiting";
  return "; waiting up to " + rest_text(std::max(*join_deadline_ - now, 0ns));
}

void Gathering::tell(Announcer& announcer, Session newcomer, const Nodes& nodes,
                     const JobRules& rules, Clock::time_point now) {
  telling_due_.reset();
  if (pause_ && nodes.count() >= rules.nodes_min) {
    if (std::exchange(told_key_, pause_->sentence) != pause_->sentence) {
      announcer.stand(pause_->sentence, now);
    } else if (newcomer != 0) {
      announcer.put(Standing{newcomer, announcer.standing()});
    }
    return;
  }
  std::size_t calls = 0;
  if (last_call_) {
    while (calls < countdown.size() && *last_call_ - now <= countdown[calls]) ++calls;
    if (calls < countdown.size()) telling_due_ = *last_call_ - countdown[calls];
  }
  const auto told = announcer.told();
  if (nodes.count() > nodes_told_at_once && told && now < *told + telling_interval) {
    const auto next = *told + telling_interval;
    telling_due_ = telling_due_ ? std::min(*telling_due_, next) : next;
    // Newcomers hear it then, too: a word for each of a crowd would cost as much as its round.
    newcomers_wait_ |= newcomer != 0;
    return;
  }
  if (std::exchange(newcomers_wait_, false)) {
    told_key_.clear();
    announcer.forget_standing();
  }
  // The clock alone is no news: it is told a few times only.
  const std::string here =
      count_text(nodes, rules) + " (" + nodes.names() + ")" + nodes.missing_ranks(rules);
  std::string key = here + (last_call_ ? "; last call" : "");
  if (key == told_key_ && calls == calls_told_) {
    if (newcomer != 0) announcer.put(Standing{newcomer, announcer.standing()});
    return;
  }
  calls_told_ = calls;
  announcer.stand(here + wait_text(nodes, rules, now), now);
  told_key_ = std::move(key);
}

}  // namespace dlaunch::rendezvous
