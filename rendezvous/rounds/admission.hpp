#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// A node's place in an epoch.
namespace dlaunch::rendezvous {

/// A value that nobody changes and many have in common, such as what thousands of nodes are told:
/// its copies are one object. Any thread.
template <class T>
class SharedValue {
 public:
  SharedValue() = default;
  SharedValue(T value) : value_(std::make_shared<const T>(std::move(value))) {}

  const T& operator*() const {
    static const T none;
    return value_ ? *value_ : none;
  }
  const T* operator->() const { return &**this; }
  bool operator==(const SharedValue& other) const {
    return value_ == other.value_ || **this == *other;
  }

 private:
  std::shared_ptr<const T> value_;  ///< Null: an empty value.
};

/// The epoch that a node already holds when it joins, which a restarted daemon has to learn anew.
struct Holding {
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 0;
  int attempt = 0;
  int node_rank = 0;
  int node_count = 1;
  int first_rank = 0;
  int world_size = 1;

  bool operator==(const Holding&) const = default;
};

/// Memory that several nodes of a host have in common.
struct CommonMemory {
  struct Part {
    int first_rank = 0;
    int workers = 1;
    bool operator==(const Part&) const = default;
  };
  /// The nodes, by rank; the agent of the first one makes it. Empty: each has its own.
  std::vector<Part> parts = {};
  /// The abstract name at which that agent lends it; empty for that agent itself.
  std::string lender = {};

  bool operator==(const CommonMemory&) const = default;
};
/// More nodes of a host have no memory in common.
constexpr std::size_t memory_parts_max = 256;

/// A node's place in a closed round. Nothing here grows with the number of nodes, save `roster`;
/// what is shared is the same for all of them.
struct Admission : Holding {
  int local_size = 1;
  /// The addresses at which node rank 0 serves PyTorch's store.
  SharedValue<std::vector<std::string>> store_addresses;
  /// All nodes by rank, for node rank 0 alone, which may serve only these.
  struct Entry {
    std::string id;
    std::string host;
    int first_rank = 0;
    int workers = 1;
    std::vector<std::string> store_addresses;
    bool operator==(const Entry&) const = default;
  };
  SharedValue<std::vector<Entry>> roster;
  /// The reason for an epoch after the first: "node b joins", "node b is lost: ...".
  SharedValue<std::string> again_for;
  /// Whether the epoch's ranks on this host outnumber the processors that they may use.
  bool crowded = false;
  CommonMemory memory = {};

  bool operator==(const Admission&) const = default;
};

}  // namespace dlaunch::rendezvous
