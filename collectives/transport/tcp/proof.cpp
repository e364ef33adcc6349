#include "collectives/transport/tcp/proof.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/os/random.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace dlaunch::transport {
namespace {

/// The authenticated data: everything has a fixed size, so that it cannot be read in two ways.
struct Signed {
  std::array<char, 24> label{};
  Meeting meeting;
};
static_assert(std::has_unique_object_representations_v<Signed>, "padding would be signed, too");

Mac mac_with(std::string_view label, const Key& key, const Meeting& meeting) {
  Signed all;
  std::copy(label.begin(), label.end(), all.label.begin());
  all.meeting = meeting;
  return mac_of(key, std::as_bytes(std::span(&all, 1)));
}

template <std::size_t size>
void copy_from(BytesView from, std::array<std::byte, size>& to) {
  std::copy_n(from.begin(), size, to.begin());
}

}  // namespace

Nonce fresh_nonce() {
  std::array<std::uint64_t, sizeof(Nonce) / sizeof(std::uint64_t)> numbers{};
  std::generate(numbers.begin(), numbers.end(), random_number);
  return std::bit_cast<Nonce>(numbers);
}

Mac acceptor_mac(const Key& key, const Meeting& meeting) {
  return mac_with("dlaunch 1 acceptor ", key, meeting);
}
Mac connector_mac(const Key& key, const Meeting& meeting) {
  return mac_with("dlaunch 1 connector", key, meeting);
}

std::optional<Mac> answer_to(BytesView challenge, const Key& key, Meeting meeting) {
  if (challenge.size() != challenge_bytes) return std::nullopt;
  Mac theirs;
  copy_from(challenge, meeting.acceptor_nonce);
  copy_from(challenge.subspan(sizeof(Nonce)), theirs);
  if (!same_mac(theirs, acceptor_mac(key, meeting))) return std::nullopt;
  return connector_mac(key, meeting);
}

Acceptance::Acceptance(const Hello& expected, const Key* key, const Nonce& own_nonce)
    : expected_(expected), key_(key) {
  meeting_.acceptor = expected.rank;
  meeting_.acceptor_nonce = own_nonce;
}

bool Acceptance::is_one_of_us(const Hello& theirs) const {
  Hello same = expected_;
  same.rank = theirs.rank;
  return std::memcmp(&same, &theirs, sizeof theirs) == 0 && theirs.rank >= 0 &&
         theirs.rank < expected_.size && theirs.rank != expected_.rank;
}

Acceptance::Verdict Acceptance::feed(BytesView in, Bytes& answer) {
  std::copy(in.begin(), in.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(got_));
  got_ += in.size();
  if (got_ < wanted_) return Verdict::more;
  got_ = 0;
  switch (step_) {
    case Step::hello:
      std::memcpy(&meeting_.hello, buffer_.data(), sizeof(Hello));
      if (!is_one_of_us(meeting_.hello)) return Verdict::refused;
      if (key_ == nullptr) return Verdict::admitted;
      step_ = Step::nonce;
      wanted_ = sizeof(Nonce);
      return Verdict::more;
    case Step::nonce: {
      copy_from(buffer_, meeting_.connector_nonce);
      const Mac mac = acceptor_mac(*key_, meeting_);
      ByteWriter(answer).raw(meeting_.acceptor_nonce);
      ByteWriter(answer).raw(mac);
      step_ = Step::mac;
      wanted_ = sizeof(Mac);
      return Verdict::more;
    }
    case Step::mac:
      break;
  }
  Mac theirs;
  copy_from(buffer_, theirs);
  return same_mac(theirs, connector_mac(*key_, meeting_)) ? Verdict::admitted : Verdict::refused;
}

}  // namespace dlaunch::transport
