#pragma once

#include "tests/process/daemon.hpp"
#include "tests/process/nodes.hpp"
#include "tests/support/secret_file.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace dlaunch::process_test {

struct Said {
  int code = 0;
  std::string out, err;
};

/// A daemon on which the operator ada may act, and her tool.
class OperatedDaemon {
 public:
  explicit OperatedDaemon(const Strings& options = {}) : daemon(all(options)) {}

  /// `dlaunch ctl`, with her token.
  Said ctl(Strings words) const {
    words.insert(words.begin(), "ctl");
    words.insert(words.end(), {"--endpoint", http(), "--token-file", operators.path()});
    return run(std::move(words));
  }
  static Said run(Strings words) {
    Job asking(std::move(words), Job::Environment{});
    Said said;
    said.code = asking.wait().code;
    said.out = asking.out();
    said.err = asking.err();
    return said;
  }
  std::string http() const {
    const std::string& said = daemon.job().err();
    const auto at = said.find("http=") + 5;
    return said.substr(at, said.find(' ', at) - at);
  }

  testing::SecretFile operators{"ada 0123456789abcdef0123456789abcdef"};
  mutable Daemon daemon;

 private:
  Strings all(const Strings& options) const {
    Strings line = {"--http", "127.0.0.1:0", "--http-token-file", operators.path()};
    std::ranges::copy(options, std::back_inserter(line));
    return line;
  }
};

}  // namespace dlaunch::process_test
