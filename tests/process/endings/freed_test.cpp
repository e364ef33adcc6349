// Memory that a call needs and that the program has freed, or that ends earlier: AddressSanitizer
// knows it, and the call says so, wherever the memory would have been touched.
#include "tests/process/job.hpp"

#include <doctest/doctest.h>

namespace dlaunch::process_test {

TEST_CASE("under AddressSanitizer a call says that its memory is not the program's any more") {
  const auto said = [](const char* how) {
    Job job({"--standalone", "--nproc-per-node", "2", "--no-python",
             DLAUNCH_BINARY_DIR "/tests/freed_rank", how});
    job.wait();
    return job.out() + job.err();
  };
  const auto check = [&](const char* how, const std::string& sentence) {
    const std::string text = said(how);
    CHECK_MESSAGE(text.find(sentence) != std::string::npos, text);
    CHECK_MESSAGE(text.find("ERROR: AddressSanitizer") == std::string::npos, text);
  };
  check("recv", "recv from rank 1 (tag 0) on rank 0: its memory was freed before it was complete");
  check("send", "send to rank 1 (tag 0) on rank 0: its memory was freed before it was complete");
  check("collective", "the memory of these 1048576 elements was freed, or ends earlier");
  check("short", "the memory of these 1048577 elements was freed, or ends earlier");
  // If the message comes all the same, AddressSanitizer sees most ways of copying it.
  const std::string late = said("late");
  const bool is_told = late.find("its memory was freed before it was complete") != late.npos ||
                       late.find("AddressSanitizer: heap-use-after-free") != late.npos;
  CHECK_MESSAGE(is_told, late);
}

}  // namespace dlaunch::process_test
