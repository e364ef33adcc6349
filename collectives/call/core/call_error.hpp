#pragma once

#include "runtime/base/verdict.hpp"

#include <dlaunch/error.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace dlaunch {

/// Whether the program's call itself was wrong: it fails, and breaks nothing.
inline bool is_wrong_call(const Error& error) {
  return error.errc() == Errc::misuse || error.errc() == Errc::unsupported;
}

/// The exception of a call: an Error with more than its sentence.
class CallError : public Error {
 public:
  CallError(Errc code, const std::string& sentence, Claim claim = {}, bool told = false)
      : Error(code, sentence), claim_(std::move(claim)), told_(told) {}
  /// Says whose fault it was.
  const Claim& claim() const noexcept { return claim_; }
  /// Whether another rank told us of it, and so all others, too.
  bool told() const noexcept { return told_; }
  /// The number of the call in which it went wrong, where that is before the one that failed.
  std::uint64_t since() const noexcept { return since_; }
  CallError& since(std::uint64_t sequence) noexcept {
    since_ = sequence;
    return *this;
  }

 private:
  Claim claim_;
  bool told_;
  std::uint64_t since_ = ~std::uint64_t{0};
};

}  // namespace dlaunch
