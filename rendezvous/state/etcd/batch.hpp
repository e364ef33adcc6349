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
  std::string value;  ///< The value of a put.

  bool operator==(const Operation&) const = default;
};

/// Limits of a transaction. By default etcd takes 128 operations in one, and 1.5 MiB in a request;
/// a few operations are added to those of a batch.
constexpr std::size_t operations_max = 120;
constexpr std::size_t operation_bytes_max = 1u << 20;
/// The longest value of one key; a longer one is stored in pieces.
constexpr std::size_t piece_bytes = 256u << 10;

/// Combines a batch of changes: only the last change of each key counts. etcd refuses a transaction
/// that names a key twice, so a key that is put after its whole prefix was erased goes into a later
/// transaction. Pure.
class Batch {
 public:
  void put(std::string key, std::string value);
  void erase(std::string key);
  void erase_all(std::string prefix);
  bool empty() const;

  /// The transactions in their order, none of them too large for etcd.
  std::vector<std::vector<Operation>> transactions() const;

 private:
  struct Stage {
    std::vector<std::string> erased;  ///< Prefixes that are erased first.
    std::map<std::string, std::optional<std::string>, std::less<>> keys;
  };
  Stage& stage_for(std::string_view key);

  std::vector<Stage> stages_ = std::vector<Stage>(1);
};

/// Transactions as bytes, and back. They are stored in this form, as a whole, before the first of
/// several is made. Nullopt for other bytes.
std::string to_bytes(const std::vector<std::vector<Operation>>& transactions);
std::optional<std::vector<std::vector<Operation>>> from_bytes(std::string_view bytes);

}  // namespace dlaunch::rendezvous::etcd
