#include "tests/support/c10d_peer.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

/// A PyTorch client that says anything. The first byte tells how its bytes are cut; however that
/// is, the same must be heard as when they come at once, and a second client must not notice.

namespace {

void insist(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "c10d_fuzz: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  using c10d_test::Peer;
  if (size == 0) return 0;
  const std::size_t piece = data[0] + std::size_t{1};
  const std::string bytes(data + 1, data + size);

  // A full store must not look like a finding of the fuzzer.
  store::Limits limits;
  limits.total_bytes = 16u << 20;
  c10d::Namespace whole_shared(limits), cut_shared(limits);
  Peer whole(1, whole_shared), cut(1, cut_shared), witness(2, cut_shared);
  witness.say(std::string(as_text(c10d::hello)));

  const bool whole_spoken = whole.say(bytes);
  bool cut_spoken = true;
  for (std::size_t at = 0; at < bytes.size() && cut_spoken && !cut.closed(); at += piece) {
    cut_spoken = cut.say(bytes.substr(at, piece));
  }
  insist(cut_spoken == whole_spoken, "garbage to one, not to the other");
  insist(cut.closed() == whole.closed(), "closed to one, not to the other");
  insist(cut.heard() == whole.heard(), "the replies differ");
  insist(cut_shared.values.size() == whole_shared.values.size(), "the stores differ");

  cut.hang_up();
  insist(cut_shared.barriers.size() == 0, "a barrier is left behind");
  witness.say(c10d_test::Wire().code(c10d_test::code_c::ping).u32(5).str());
  insist(witness.heard() == c10d_test::Wire().u32(5).str(), "another client is disturbed");
  return 0;
}
