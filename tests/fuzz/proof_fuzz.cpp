#include "collectives/transport/tcp/proof.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/// A stranger that connects to a rank's port may say anything. The first byte tells whether the job
/// has a key, the second how the bytes are cut: however that is, the verdict is the same, and with
/// a key nobody is admitted whose last bytes are not the proof. Then the bytes are taken for a
/// challenge.

namespace {

using namespace dlaunch;
using namespace dlaunch::transport;
using Outcome = Acceptance::Verdict;

void insist(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "proof_fuzz: %s\n", what);
  std::abort();
}

Key fixed_key() {
  std::array<std::byte, Key::size> bytes{};
  bytes.fill(std::byte{1});
  return Key(bytes);
}

Outcome feed(Acceptance& acceptance, BytesView bytes, std::size_t piece, Bytes& answer) {
  Outcome verdict = Outcome::more;
  while (!bytes.empty() && verdict == Outcome::more) {
    const auto part = bytes.first(std::min({bytes.size(), piece, acceptance.wanted()}));
    bytes = bytes.subspan(part.size());
    verdict = acceptance.feed(part, answer);
  }
  return verdict;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const Key own = fixed_key();
  const Key* key = (data[0] & 1) != 0 ? &own : nullptr;
  const std::size_t piece = data[1] + std::size_t{1};
  const BytesView bytes = std::as_bytes(std::span(data + 2, size - 2));

  Hello expected;
  expected.job = 7;
  expected.epoch = 3;
  expected.size = 4;
  expected.proves = key != nullptr ? 1 : 0;
  Acceptance whole(expected, key, Nonce{}), cut(expected, key, Nonce{});
  Bytes whole_answer, cut_answer;
  const Outcome verdict = feed(whole, bytes, bytes.size() + 1, whole_answer);
  insist(feed(cut, bytes, piece, cut_answer) == verdict, "the verdict depends on the cut");
  insist(whole_answer == cut_answer, "the answer depends on the cut");

  if (verdict == Outcome::admitted) {
    insist(whole.rank() > 0 && whole.rank() < 4, "a rank that cannot be was admitted");
  }
  if (verdict == Outcome::admitted && key != nullptr) {
    Meeting meeting;
    Mac proof;
    std::memcpy(&meeting.hello, bytes.data(), sizeof(Hello));
    std::memcpy(meeting.connector_nonce.data(), bytes.data() + sizeof(Hello), sizeof(Nonce));
    std::memcpy(proof.data(), bytes.data() + sizeof(Hello) + sizeof(Nonce), sizeof proof);
    insist(proof == connector_mac(own, meeting), "somebody was admitted without a proof");
  }
  Meeting ours;
  ours.hello = expected;
  ours.acceptor = 1;
  insist(!answer_to(bytes, own, ours), "a challenge was taken that nobody can have made");
  return 0;
}
