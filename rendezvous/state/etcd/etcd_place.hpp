#pragma once

#include "rendezvous/state/etcd/gateway.hpp"
#include "rendezvous/state/etcd/lead.hpp"
#include "rendezvous/state/etcd/rows.hpp"
#include "rendezvous/state/etcd/servers.hpp"
#include "rendezvous/state/state_place.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::rendezvous::etcd {

/// State in etcd, led by one process at a time: the leader holds a key that its lease keeps there.
/// Each transaction has two conditions: the key is the one that this process made, and the last
/// transaction is the predecessor. So a process that was succeeded by another writes nothing, and a
/// request that reaches etcd twice or late takes effect once.
class EtcdPlace final : public StatePlace {
 public:
  enum class Why { another_leads, out_of_reach };
  /// Called while it does not lead, once for each reason.
  using Told = std::function<void(Why why, const std::string& sentence)>;
  /// Returns when this process leads, or null when `stop` is requested first. `identity` is its
  /// name for others. Throws Error (Errc::refused) if etcd refuses.
  static std::unique_ptr<EtcdPlace> lead(const Servers& servers, const std::string& identity,
                                         const std::stop_token& stop, const Told& told);
  /// Reads the whole state, without leading. Throws Error.
  static StateContents read(const Servers& servers);

  /// Gives up the lead, so that nobody has to wait until the lease has ended.
  ~EtcdPlace() override;

  StateContents load() override;
  /// As many as a transaction has room for.
  std::size_t changes_at_once() const override { return operations_max; }
  Wrote write(std::span<const Change> changes) override;
  Clock::time_point tend() override;
  Obstacle obstacle() const override;
  /// Throws: etcd has backups of its own.
  std::unique_ptr<Backup> back_up(const std::string& name) override;
  bool is_ours() const override { return lead_.is_ours(); }
  std::optional<StateFigures::Lead> lead() const override;

 private:
  /// The transactions of a batch, of which some may be made already.
  struct Plan {
    std::vector<std::vector<Operation>> transactions;
    std::size_t made = 0;
  };
  explicit EtcdPlace(const Servers& servers);

  void keep_lead();
  void unreachable(const Failure& failure);

  Error unreadable(const Failure& failure) const;
  Json range(const std::string& key, const std::string& end, std::int64_t revision,
             std::size_t limit);
  std::optional<std::string> value_of(const std::string& key);
  /// Throws Error where the state is of a later version than is known here.
  void require_version(const std::string& version) const;
  void finish_interrupted();
  void begin_commits();
  void each_below(std::string_view below, std::int64_t revision,
                  const std::function<void(std::string key, std::string value)>& take);
  std::vector<std::vector<Operation>> transactions_of(const std::string& log,
                                                      const std::string& seal) const;

  static Plan planned(const Batch& batch);
  void carry_out(Plan& plan);
  /// The same on a copy of the contents.
  static void carry_out(const std::vector<Operation>& operations,
                        std::map<std::string, std::string>& all);
  void make(const std::vector<Operation>& operations);
  [[noreturn]] void lost(const std::string& why);
  [[noreturn]] void refused(const Failure& failure);

  const Servers servers_;
  const std::string name_, prefix_;
  Gateway gateway_;
  Lead lead_;
  std::uint64_t commits_ = 0;  ///< The number of the last transaction.
  Rows rows_;
  std::optional<Plan> under_way_;
  Obstacle obstacle_;
};

}  // namespace dlaunch::rendezvous::etcd
