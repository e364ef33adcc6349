#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace dlaunch::store {

/// A range of contributors to a namespace's aggregates.
struct Contributors {
  int first = 0;
  int count = 1;
  int end() const { return first + count; }
};

/// The contributors that will not come any more, as ranges, each with the reason: a lost node takes
/// all its ranks with it. Pure.
class Losses {
 public:
  /// Adds losses of `world`. Contributors that were lost before keep their reason.
  void add(Contributors lost, int world, std::string_view why);

  struct Range {
    int end = 0;
    std::shared_ptr<const std::string> why;
  };
  /// The losses of `world`, by the first contributor of each range.
  const std::map<int, Range>& of(int world) const;
  std::size_t bytes() const { return bytes_; }

 private:
  std::map<int, std::map<int, Range>> worlds_;
  std::size_t bytes_ = 0;
};

}  // namespace dlaunch::store
