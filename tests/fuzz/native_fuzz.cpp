#include "runtime/store/native/native.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

/// A native client that says anything, behind a proper HELLO unless the first byte is odd. The
/// second byte tells how its bytes are cut; however that is, the same must be heard as when they
/// come at once, and a second client must not notice. Then the bytes are taken for each message a
/// client decodes.

namespace {

using namespace dlaunch;

void insist(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "native_fuzz: %s\n", what);
  std::abort();
}

class Welcoming : public store::Host {
 public:
  std::variant<wire::Welcome, Refusal> admit(store::ConnectionId,
                                             const wire::Hello& hello) override {
    if (hello.job == "no") return Refusal{Errc::refused, "no"};
    return wire::Welcome{"job", 1, 0};
  }
  void on_message(store::ConnectionId, const wire::FrameHeader&, BytesView) override {}
  void on_other_version(store::ConnectionId, std::uint32_t) override {}
  void on_closed(store::ConnectionId, bool) override {}
};

/// One side of a connection, in memory.
class Peer : public store::Outbox {
 public:
  Peer(std::uint64_t client, store::NativeSpaces& spaces) : session_(spaces.open(client, *this)) {}

  bool say(BytesView bytes) {
    return closed_ || session_->feed(bytes, Clock::time_point{} + std::chrono::seconds(1));
  }
  Bytes& buffer() override { return heard_; }
  Bytes& ahead() override { return heard_; }
  void share(std::shared_ptr<const Bytes> block) override {
    heard_.insert(heard_.end(), block->begin(), block->end());
  }
  void close() override { closed_ = true; }
  bool congested() const override { return false; }
  void fail() noexcept override { closed_ = true; }

  const Bytes& heard() const { return heard_; }
  bool closed() const { return closed_; }
  void hang_up() { session_.reset(); }

 private:
  Bytes heard_;
  bool closed_ = false;
  std::unique_ptr<store::Session> session_;
};

Bytes greeting(std::uint64_t session) {
  Bytes out;
  wire::encode_preface(out);
  wire::Hello hello;
  hello.session = session;
  wire::encode_frame(out, {}, hello);
  return out;
}

/// All bytes that decode encode to the same bytes again.
template <class... Messages>
void decode_each(BytesView payload) {
  const auto decode = [&]<class Message>(std::type_identity<Message>) {
    const auto message = wire::decode<Message>(payload);
    if (!message) return;
    Bytes again;
    wire::encode(again, *message);
    insist(std::ranges::equal(again, payload), "what was decoded encodes differently");
  };
  (decode(std::type_identity<Messages>{}), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const bool greets = (data[0] & 1) == 0;
  const std::size_t piece = data[1] + std::size_t{1};
  const BytesView bytes = std::as_bytes(std::span(data + 2, size - 2));

  // A full store must not look like a finding of the fuzzer.
  store::Limits limits;
  limits.total_bytes = 16u << 20;
  Welcoming host;
  store::NativeSpaces whole_space(host, limits), cut_space(host, limits);
  Peer whole(1, whole_space), cut(1, cut_space), witness(2, cut_space);
  insist(witness.say(greeting(0)), "a greeting is garbage");
  if (greets) insist(whole.say(greeting(7)) && cut.say(greeting(7)), "a greeting is garbage");

  const bool whole_spoken = whole.say(bytes);
  bool cut_spoken = true;
  for (std::size_t at = 0; at < bytes.size() && cut_spoken; at += piece) {
    cut_spoken = cut.say(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  }
  insist(cut_spoken == whole_spoken, "garbage to one, not to the other");
  insist(cut.closed() == whole.closed(), "closed to one, not to the other");
  insist(cut.heard() == whole.heard(), "the answers differ");
  insist(cut_space.find(store::first_space)->values.size() ==
             whole_space.find(store::first_space)->values.size(),
         "the stores differ");
  cut_space.tick(Clock::time_point{} + std::chrono::hours(2));
  cut.hang_up();

  const std::size_t before = witness.heard().size();
  Bytes ping;
  wire::encode_frame(ping, {0, wire::Type::ping, 0, 5, 0}, BytesView{});
  insist(witness.say(ping) && witness.heard().size() == before + wire::header_bytes,
         "another client is disturbed");

  decode_each<wire::Hello, wire::Welcome, wire::Done, wire::Number, wire::Found, wire::Absent,
              wire::Values, wire::Keys, wire::Page, wire::Compared, wire::Popped, wire::Gathered,
              wire::Changed, wire::Failed, wire::Grant, wire::Report, wire::PeerLost, wire::Abort,
              wire::Warning, wire::Inquire, wire::Doing>(bytes);
  wire::Requests::any([&](auto operation) {
    decode_each<typename decltype(operation)::Message>(bytes);
    return false;
  });
  return 0;
}
