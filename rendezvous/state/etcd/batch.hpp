#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::rendezvous::etcd {

/// One step of a transaction, on a key below the state's own prefix.
struct Operation {
  enum class Kind {
    put,
    erase,
    erase_all,  ///< All keys that begin with this one.
  };
  Kind kind = Kind::put;
  std::string key;
  std::string value;  ///< Of a put.

  bool operator==(const Operation&) const = default;
};

/// etcd takes 128 operations in a transaction and 1.5 MiB in a request, by default. A few are added
/// to those of a batch.
constexpr std::size_t operations_max = 120;
constexpr std::size_t operation_bytes_max = 1u << 20;
/// A longer value is more than one pair of key and value.
constexpr std::size_t piece_bytes = 256u << 10;

/// What a batch of changes comes to: the last word on each key. etcd refuses a transaction that
/// names a key twice, so what is put again after all like it were erased is a transaction of its
/// own. Pure.
class Batch {
 public:
  void put(std::string key, std::string value);
  void erase(std::string key);
  void erase_all(std::string prefix);
  bool empty() const;

  /// In the order in which they have to be made, none of them too large for etcd.
  std::vector<std::vector<Operation>> transactions() const;

 private:
  struct Stage {
    std::vector<std::string> erased;  ///< What begins so goes first.
    std::map<std::string, std::optional<std::string>, std::less<>> keys;
  };
  Stage& stage_for(std::string_view key);

  std::vector<Stage> stages_ = std::vector<Stage>(1);
};

/// Transactions as bytes, and back: they are kept so, as a whole, before the first of several is
/// made. Nullopt for what was not written so.
std::string to_bytes(const std::vector<std::vector<Operation>>& transactions);
std::optional<std::vector<std::vector<Operation>>> from_bytes(std::string_view bytes);

}  // namespace dlaunch::rendezvous::etcd
