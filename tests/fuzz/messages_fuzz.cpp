#include "rendezvous/service/messages.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <type_traits>

/// Any bytes as the payload of each message between agent and rendezvous: what decodes must encode
/// to the same bytes again.

namespace {

using namespace dlaunch;
namespace message = rendezvous::message;

template <class... Messages>
void decode_each(BytesView payload) {
  const auto decode = [&]<class Message>(std::type_identity<Message>) {
    const auto decoded = message::decode<Message>(payload);
    if (!decoded) return;
    Bytes again;
    message::encode(again, *decoded);
    if (std::ranges::equal(again, payload)) return;
    std::fputs("messages_fuzz: what was decoded encodes differently\n", stderr);
    std::abort();
  };
  (decode(std::type_identity<Messages>{}), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  decode_each<message::Join, message::Leave, message::Heartbeat, message::WorkerFailed,
              message::WorkerLeft, message::WorkersEnded, message::CallsMade, message::CallsNow,
              message::Admitted, message::Refused, message::Stopped, message::RanksLost,
              message::Standing, message::Finished, message::Ask, message::Asked, message::Answer,
              message::Answered, message::AnswerTaken>(std::as_bytes(std::span(data, size)));
  return 0;
}
