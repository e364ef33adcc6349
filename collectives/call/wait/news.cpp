#include "collectives/call/wait/news.hpp"

#include "collectives/call/wait/records.hpp"

namespace dlaunch {
namespace {

using transport::FailureNotice;
using transport::Fingerprint;
using transport::Kind;
using transport::Receive;

Ending mismatch_of(const CallFrame& frame, const Receive& receive) {
  if (receive.kind == Kind::message) {
    return ending::MessageDiffers{receive.header, receive.source, receive.expected};
  }
  ending::CallDiffers differs{receive.source, fingerprint_of(receive.header)};
  if (differs.theirs == frame.fingerprint) {
    differs.sizes = {receive.header.bytes, receive.into.size()};
  }
  return differs;
}

/// Finds messages on the device that differ from the other side's word.
std::optional<Ending> find_device_message(const CallFrame& frame) {
  auto& news = frame.setting.mesh.control();
  CallHistory* const history = frame.setting.history;
  if (history == nullptr || !(news.has_calls() || history->has_unlike())) return std::nullopt;
  while (const auto message = news.next_message(frame.setting.group.id)) {
    history->take_message(message->from, message->call);
  }
  const auto unlike = history->unlike();
  if (!unlike) return std::nullopt;
  return ending::DeviceMessageDiffers{unlike->from, unlike->sent, unlike->expected};
}

/// Finds a collective of which another rank tells and which is another one here.
std::optional<Ending> find_call(const CallFrame& frame) {
  auto& news = frame.setting.mesh.control();
  if (!transport::is_counted(frame.fingerprint.op) || !news.has_calls()) return std::nullopt;
  while (const auto theirs = news.next_call(frame.setting.group.id, frame.fingerprint.sequence)) {
    const auto mine = call_made(frame, theirs->call.sequence);
    if (mine && *mine != theirs->call) return ending::CallDiffers{theirs->from, theirs->call};
  }
  return std::nullopt;
}

/// Finds wrong arguments that another rank gave to this call, or to one on this rank's stream,
/// which cannot end there.
const FailureNotice* find_wrong_arguments(const CallFrame& frame) {
  const auto& news = frame.setting.mesh.control();
  const std::uint64_t communicator = frame.setting.group.id;
  const auto* notice = news.failure_of(communicator, frame.fingerprint.sequence);
  if (notice != nullptr || frame.setting.history == nullptr) return notice;
  notice = news.wrong_arguments(communicator);
  if (notice == nullptr) return nullptr;
  const auto mine = frame.setting.history->find(notice->sequence);
  return mine && mine->on_device() ? notice : nullptr;
}

}  // namespace

std::optional<Ending> find_told(const CallFrame& frame) {
  if (frame.setting.aborted) return ending::Aborted{frame.setting.aborted.site()};
  const FailureNotice* notice = frame.setting.mesh.control().failure_of(frame.setting.group.id);
  if (notice == nullptr) return std::nullopt;
  const bool concerns = frame.is_message() || notice->sequence <= frame.fingerprint.sequence;
  return concerns ? std::optional<Ending>(ending::Told{*notice}) : std::nullopt;
}

std::optional<Ending> find_news(const CallFrame& frame, const Receive* receive) {
  if (receive != nullptr && receive->state == Receive::State::mismatched) {
    return mismatch_of(frame, *receive);
  }
  if (receive != nullptr && receive->state == Receive::State::too_long) {
    return ending::TooLong{receive->header, receive->source, receive->expected.count};
  }
  if (auto told = find_told(frame)) return told;
  if (auto differs = find_device_message(frame)) return differs;
  if (frame.is_message() || frame.tolerant) return std::nullopt;
  if (auto differs = find_call(frame)) return differs;
  const FailureNotice* wrong = find_wrong_arguments(frame);
  if (wrong == nullptr) return std::nullopt;
  return ending::WrongArguments{*wrong};
}

}  // namespace dlaunch
