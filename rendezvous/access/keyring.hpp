#pragma once

#include "runtime/base/secret/secret.hpp"
#include "runtime/store/server/server.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace dlaunch::rendezvous {

/// A master key, and the role of a connection that proves it.
struct Granted {
  Secret secret;
  store::Role role = store::Role::node;
};

/// The secrets of a daemon, by numbers that do not change with the file: the accepted ones, and the
/// last few that were withdrawn, so that their holders can be told. One thread.
class Keyring {
 public:
  /// Accepts these, and withdraws all others. Throws Error{misuse}, and changes nothing, where one
  /// secret has two roles.
  void accept(const std::vector<Granted>& secrets);

  bool empty() const { return accepted_.empty(); }
  /// The keys for a server, accepted ones first.
  std::vector<store::ServerKey> keys() const;
  /// "2 secrets are accepted; 1 connection has proved the first, 3 the second". `connections` tells
  /// how many have proved the key of a number.
  std::string report(const std::function<std::size_t(std::uint64_t key)>& connections) const;

 private:
  struct Known {
    std::uint64_t number = 0;
    Granted granted;
  };
  static bool same(const Secret& one, const Secret& other);
  std::string name_of(std::size_t accepted) const;

  std::deque<Known> accepted_, withdrawn_;  ///< withdrawn_: the last one first.
  std::uint64_t last_ = 0;
};

}  // namespace dlaunch::rendezvous
