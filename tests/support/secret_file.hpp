#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <unistd.h>

namespace dlaunch::testing {

/// A file that only its owner may read, gone with the test.
class SecretFile {
 public:
  explicit SecretFile(const std::string& text) {
    const int fd = ::mkstemp(path_.data());
    REQUIRE(fd >= 0);
    ::close(fd);
    std::ofstream(path_) << text << '\n';
  }
  ~SecretFile() { ::unlink(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/dlaunch-secret-XXXXXX";
};

}  // namespace dlaunch::testing
