#include "runtime/store/tls/tls.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>

/// Somebody without the key says anything to an end of a secret connection: to the server's where
/// the first byte is even, to the client's, behind its hello, where it is odd. The second byte
/// tells how the bytes are cut. No session may come of it, nothing may be heard, and an end that
/// has broken stays so, with its reason. (What is answered has random parts and is not compared.)

namespace {

using namespace dlaunch;

void insist(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "tls_fuzz: %s\n", what);
  std::abort();
}

const Secret& secret() {
  static const Secret of_test = Secret::parse(
      as_bytes("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"), "the fuzzer");
  return of_test;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto key_of = [](std::string_view job) { return secret().job_key(std::string(job)); };
  static const store::ServerKeys accepting({key_of});
  static const Key key = secret().job_key("train");
  const std::size_t piece = data[1] + std::size_t{1};
  const BytesView bytes = std::as_bytes(std::span(data + 2, size - 2));

  Bytes plain, out;
  std::unique_ptr<TlsChannel> end;
  if ((data[0] & 1) == 0) {
    end = accepting.accept();
  } else {
    end = store::connect_tls("train", key);
    insist(end->feed({}, plain, out) == TlsChannel::Fed::open, "a client does not begin");
  }
  auto fed = TlsChannel::Fed::open;
  std::size_t taken = 0;
  for (; taken < bytes.size() && fed == TlsChannel::Fed::open; taken += piece) {
    fed = end->feed(bytes.subspan(taken, std::min(piece, bytes.size() - taken)), plain, out);
  }
  insist(!end->established(), "a session without the key");
  insist(plain.empty(), "something was heard without the key");
  Bytes sealed;
  insist(!end->seal(as_bytes("a value"), sealed) && sealed.empty(), "something was told");
  if (fed == TlsChannel::Fed::open) {
    insist(taken <= TlsChannel::handshake_bytes_max + piece, "a handshake without an end");
  } else if (fed == TlsChannel::Fed::broken) {
    insist(end->trouble() != TlsChannel::Trouble::none, "an end broke without a reason");
    insist(end->feed(bytes, plain, out) == TlsChannel::Fed::broken && plain.empty(),
           "an end that has broken goes on");
  }
  return 0;
}
