#include "collectives/call/wait/investigation.hpp"

#include "collectives/algorithms/select/select.hpp"
#include "collectives/call/core/diagnose.hpp"
#include "collectives/call/wait/news.hpp"
#include "collectives/call/wait/records.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::Fingerprint;
using transport::Inquiry;
using transport::MadeCall;
using transport::Question;

/// The time for answers to "what are you doing?" after the deadline.
constexpr auto answer_grace = 200ms;
/// The time for other nodes' agents to report on their ranks; our agent gives up a little earlier.
constexpr auto agents_grace = 700ms;
/// The time to learn where another rank made its call; both ranks report in less than a second.
constexpr auto place_grace = 500ms;
/// The time for a rank of this node to record a message that has come; and the pause between looks.
constexpr auto record_grace = 100ms;
constexpr auto record_interval = 1ms;
/// The most ranks about which agents are asked.
constexpr std::size_t asked_of_agents_max = 16;

/// An inquiry, as long as its answers are waited for.
class Asking {
 public:
  Asking(transport::Links& mesh, const std::vector<int>& ranks, Inquiry& inquiry)
      : mesh_(mesh), inquiry_(inquiry) {
    mesh_.inquire(ranks, inquiry_);
  }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  ~Asking() { mesh_.control().withdraw(inquiry_); }

 private:
  transport::Links& mesh_;
  Inquiry& inquiry_;
};

/// The answer, if it is of that kind.
template <class Kind>
std::optional<Kind> answered(const transport::Answer& answer) {
  const auto* told = std::get_if<Kind>(&answer);
  return told == nullptr ? std::nullopt : std::optional(*told);
}

}  // namespace

Ending Investigation::complete(Ending ending) {
  std::visit([this](auto& end) { fill(end); }, ending);
  return heard_ ? Investigation(frame_).complete(*heard_) : ending;
}

std::optional<Ending> Investigation::complete(Ending ending, const Ready& ready) {
  auto* const late = std::get_if<ending::TimedOut>(&ending);
  if (late != nullptr && !fill(*late, ready)) return std::nullopt;
  if (heard_) ending = *std::exchange(heard_, std::nullopt);
  return complete(std::move(ending));
}

// ---- What ranks called. ----

std::optional<Fingerprint> Investigation::disputed(const Claim& claim) const {
  if (claim.votes.empty() || claim.communicator != frame_.setting.group.id) return std::nullopt;
  return call_made(frame_, claim.sequence);
}

void Investigation::fill(ending::Told& told) const { told.mine = disputed(told.notice.claim); }

void Investigation::fill(ending::WrongArguments& wrong) const {
  wrong.mine = disputed(wrong.notice.claim);
}

void Investigation::fill(ending::WindowDiffers& differs) {
  const std::uint64_t sequence = differs.calls.here.sequence;
  differs.made_here = made(mesh_.rank(), sequence);
  differs.made_there = made(differs.rank, sequence);
}

void Investigation::fill(ending::CallDiffers& differs) {
  if (!differs.theirs) return;
  const Fingerprint& theirs = *differs.theirs;
  differs.mine = call_made(frame_, theirs.sequence);
  const Fingerprint mine = differs.mine.value_or(frame_.fingerprint);
  const bool is_over = mine.sequence != frame_.fingerprint.sequence ||
                       (!differs.mine && theirs.sequence < mine.sequence);
  if (is_over) differs.made_here = made(mesh_.rank(), theirs.sequence);
  if (theirs.sequence > mine.sequence) {
    differs.made_then = made(differs.rank, mine.sequence);
    if (differs.made_then && !agree_but_for_argument(differs.made_then->call, mine)) return;
  }
  differs.made_there = made(differs.rank, theirs.sequence);
  if (is_over || theirs == mine || !agree_but_for_argument(theirs, mine)) return;
  const std::string here = frame_.argument_text();
  differs.arguments = {here, here.empty() ? "" : argument_of(differs.rank, theirs.sequence),
                       mesh_.table().digest(), mesh_.table().title()};
}

/// Waits for a record, since a message that need not wait leaves before it is recorded.
void Investigation::fill(ending::MessageDiffers& message) {
  Inquiry inquiry{
      .communicator = frame_.setting.group.id, .question = Question::sent, .message = message.sent};
  inquiry.message.root = frame_.setting.group.rank;
  inquiry.message.bytes = 0;
  const auto& segment = mesh_.segment();
  const bool is_near =
      message.from == mesh_.rank() || (segment && segment->local_of(message.from) >= 0);
  if (!is_near) {
    const auto from = answered<transport::SentFrom>(asked(message.from, inquiry));
    if (from) message.places = from->places;
    return;
  }
  const auto until = Clock::now() + record_grace;
  const auto look = [&] {
    message.places = mesh_.made_calls().sent_from(message.from, inquiry.message).places;
  };
  for (look(); message.places.empty() && Clock::now() < until; look()) {
    mesh_.step(std::min(until, Clock::now() + record_interval));
  }
}

/// That rank's call of that number: from its flight ring on this node; else the rank is asked.
std::optional<MadeCall> Investigation::made(int world_rank, std::uint64_t sequence) {
  auto known = mesh_.made_calls().call_made(world_rank, frame_.setting.group.id, sequence);
  if (known || world_rank == mesh_.rank()) return known;
  return answered<MadeCall>(asked(world_rank, {.sequence = sequence, .question = Question::made}));
}

std::string Investigation::argument_of(int world_rank, std::uint64_t sequence) {
  const auto words = answered<transport::ArgumentWords>(
      asked(world_rank, {.sequence = sequence, .question = Question::argument}));
  return words ? words->text : "";
}

/// Asks another rank, which hears it while it waits in a call or has started one. A rank that gave
/// up has said why.
transport::Answer Investigation::asked(int world_rank, Inquiry inquiry) {
  if (heard_) return transport::NothingKnown{};
  inquiry.communicator = frame_.setting.group.id;
  const Asking asking(mesh_, {world_rank}, inquiry);
  const auto until = Clock::now() + place_grace;
  while (inquiry.answers.empty() && !frame_.setting.aborted && Clock::now() < until) {
    const auto* told = mesh_.control().failure_of(frame_.setting.group.id);
    if (told != nullptr && told->code == Errc::mismatch) heard_ = find_told(frame_);
    if (heard_) return transport::NothingKnown{};
    mesh_.step(until);
  }
  const auto answer = inquiry.answers.find(world_rank);
  return answer == inquiry.answers.end() ? transport::NothingKnown{} : answer->second;
}

// ---- The deadline has passed: who is absent? ----

/// False if the call completed after all.
bool Investigation::fill(ending::TimedOut& late, const Ready& ready) {
  Inquiry inquiry{.communicator = frame_.setting.group.id};
  ask_ranks(late, inquiry, ready);
  if (heard_) return true;
  if (ready()) return false;
  std::vector<int> silent;
  for (const int rank : late.asked) {
    const bool is_silent = !inquiry.answers.contains(rank) && mesh_.loss_of(rank) == nullptr;
    if (is_silent && frame_.is_elsewhere(rank)) silent.push_back(rank);
  }
  const auto seen = ask_agents(silent);
  if (heard_) return true;
  if (ready()) return false;
  for (const int rank : late.asked) {
    ending::Sight sight = sight_of(rank);
    const auto answer = inquiry.answers.find(rank);
    if (answer != inquiry.answers.end()) sight.answer = answered<transport::Doing>(answer->second);
    if (const auto found = seen.find(rank); found != seen.end()) sight.seen = found->second;
    late.ranks.push_back(std::move(sight));
  }
  if (frame_.setting.flight != nullptr) late.recorded_as = frame_.setting.flight->communicator();
  late.shortage = mesh_.shortage();
  late.unwanted = unwanted();
  return true;
}

void Investigation::ask_ranks(const ending::TimedOut& late, Inquiry& inquiry, const Ready& ready) {
  const Asking asking(mesh_, late.asked, inquiry);
  const auto until = Clock::now() + answer_grace;
  while (Clock::now() < until && inquiry.answers.size() < late.asked.size()) {
    if (ready()) return;
    heard_ = find_news(frame_, nullptr);
    if (heard_) return;
    mesh_.step(until);
  }
}

/// Asks agents about ranks on other nodes that have not answered themselves, since they may be
/// stopped, or compute.
std::map<int, SeenDoing> Investigation::ask_agents(std::vector<int> silent) {
  const auto& membership = mesh_.world().membership();
  if (membership == nullptr || silent.empty()) return {};
  silent.resize(std::min(silent.size(), asked_of_agents_max));
  membership->inquire(silent);
  const auto until = Clock::now() + agents_grace;
  auto answer = membership->doing();
  for (; !answer && Clock::now() < until; answer = membership->doing()) {
    heard_ = find_news(frame_, nullptr);
    if (heard_) return {};
    mesh_.step(until);
  }
  return std::move(answer).value_or(std::map<int, SeenDoing>{});
}

/// The first message that a receive or a probe of any tag would take in place of this one.
std::optional<ending::Unwanted> Investigation::unwanted() const {
  const CallSetting& setting = frame_.setting;
  const bool receives = frame_.is_message() && frame_.fingerprint.op != transport::Op::send;
  if (!receives || setting.tag == any_tag) return std::nullopt;
  const Group& group = setting.group;
  const int from = setting.peer == any_source ? any_source : group.world_rank(setting.peer);
  const auto found = mesh_.inbox().peek(group.id, from, any_tag, group.world_ranks);
  if (!found || found->second.tag == setting.tag) return std::nullopt;
  return ending::Unwanted{found->first, found->second};
}

/// The facts about a rank that are known without its answer.
ending::Sight Investigation::sight_of(int world_rank) const {
  ending::Sight sight{.rank = world_rank};
  if (const auto& coming = mesh_.inbox().last_seen(world_rank)) {
    sight.last_heard = fingerprint_of(*coming);
    if (mesh_.inbox().is_held(world_rank)) sight.unreceived = *coming;
  }
  if (const PeerLoss* loss = mesh_.loss_of(world_rank)) sight.lost = loss->cause;
  sight.recorded = recorded_doing(frame_, world_rank);
  sight.lacks_communicator = lacks_communicator(frame_, world_rank);
  return sight;
}

}  // namespace dlaunch
