#include "collectives/call/telling.hpp"

#include "collectives/call/core/call_error.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::FailureNotice;
using transport::Kind;
using transport::Scope;

/// The time in which our last messages may leave.
constexpr auto farewell_grace = 100ms;

/// This rank's claim for the others: for its own fault the rank names itself.
Claim claim_for_others(const Error& failure, const CallError* known, int me) {
  if (known != nullptr && known->claim().fault != Fault::own) return known->claim();
  return {.fault = is_wrong_call(failure) ? Fault::arguments : Fault::gave_up, .ranks = {me}};
}

FailureNotice notice_of(const CallFrame& frame, const Error& error, Scope scope) {
  const auto* known = dynamic_cast<const CallError*>(&error);
  FailureNotice notice;
  notice.code = error.errc();
  notice.scope = scope;
  notice.communicator = frame.setting.group.id;
  notice.sentence = error.what();
  notice.claim = claim_for_others(error, known, frame.setting.mesh.rank());
  // A message belongs to no collective, so it concerns every call that is not over.
  notice.sequence = frame.is_message() ? 0 : frame.fingerprint.sequence;
  // Others may still be in earlier calls that are over here, and that it concerns: it went wrong in
  // one of them, or its origin says so.
  if (known != nullptr) notice.sequence = std::min(notice.sequence, known->since());
  const FailureNotice* told = frame.setting.mesh.control().failure_of(notice.communicator);
  if (told == nullptr) return notice;
  if (scope == Scope::from_here_on) notice.sequence = std::min(notice.sequence, told->sequence);
  if (known != nullptr && known->told()) {
    notice.met_by = told->met_by >= 0 ? told->met_by : told->from;
    notice.sentence = told->sentence;
  }
  return notice;
}

}  // namespace

void tell_failure(const CallFrame& frame, const Error& error, Scope scope) {
  auto& mesh = frame.setting.mesh;
  const auto ranks = frame.setting.group.others();
  const auto lock = mesh.lock();
  FailureNotice notice = notice_of(frame, error, scope);
  const Bytes payload = encode(notice);
  transport::Header header =
      make_header(Kind::failure, notice.communicator, frame.fingerprint, payload.size());
  header.sequence = notice.sequence;
  if (scope == Scope::from_here_on) {
    // This communicator's calls in other threads hear of it, too.
    mesh.control().take_failure(std::move(notice));
    mesh.wake();
  }
  if (ranks.empty()) return;
  try {
    for (const int rank : ranks) mesh.post_control(rank, header, payload);
    const auto until = Clock::now() + farewell_grace;
    while (!mesh.is_flushed() && Clock::now() < until) mesh.step(until);
  } catch (const Error&) {
    // The agent or the store is gone too; the first error is the one that counts.
  }
}

/// Tells calls in few messages: the first call's header is the message's header, the others are its
/// payload.
void tell_device_calls(const CallFrame& frame, CallHistory& history) {
  auto& mesh = frame.setting.mesh;
  const Group& group = frame.setting.group;
  const auto lock = mesh.lock();
  const auto untold = history.take_untold();
  if (group.size() < 2) return;
  const int next = group.world_rank((group.rank + 1) % group.size());
  constexpr std::size_t at_once = 1 + transport::control_bytes_max / sizeof(transport::Header);
  for (std::size_t i = 0; i < untold.collectives.size(); i += at_once) {
    const std::size_t end = std::min(untold.collectives.size(), i + at_once);
    Bytes others;
    for (std::size_t j = i + 1; j < end; ++j) {
      const auto header = make_header(Kind::call, group.id, untold.collectives[j], 0);
      const auto* bytes = reinterpret_cast<const std::byte*>(&header);
      others.insert(others.end(), bytes, bytes + sizeof header);
    }
    const auto first = make_header(Kind::call, group.id, untold.collectives[i], others.size());
    mesh.post_control(next, first, std::move(others));
  }
  for (const auto& [peer, message] : untold.messages) {
    mesh.post_control(peer, make_header(Kind::call, group.id, message, 0), {});
  }
}

}  // namespace dlaunch
