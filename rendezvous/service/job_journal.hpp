#pragma once

#include "rendezvous/service/histogram.hpp"
#include "runtime/store/native/space_journal.hpp"
#include "runtime/store/server/commits.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::rendezvous {

/// A record that must outlive a service, so that the next service never uses an epoch again. The
/// record with the empty name has the highest numbers of forgotten jobs, and whether new jobs are
/// refused.
struct JobRecord {
  std::string job;
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 0;       ///< The last that was closed; 0: none yet.
  std::optional<int> exit_code;  ///< Set for a finished job.
  /// Set while an operator drains it: "being drained by operator 'ada'".
  std::optional<std::string> drained = std::nullopt;

  bool operator==(const JobRecord&) const = default;
};

/// The state can no longer be kept. Thrown by the io_context's run(); after it nothing may be told
/// to anybody.
class StateLost : public Error {
 public:
  using Error::Error;
};

/// The last backup that was asked for.
struct BackupStatus {
  enum class State : std::uint8_t { none, under_way, saved, failed };
  State state = State::none;
  std::string name;
  std::string sentence;  ///< Its progress, its path, or why it failed.
};

/// The condition of a place that keeps state beyond the process.
struct StateFigures {
  Histogram commits;     ///< How long it took until changes were safe.
  bool blocked = false;  ///< Changes are refused for now, or wait for long.
  struct Lead {
    bool held = false;       ///< No other process can have begun to lead.
    Clock::duration left{};  ///< Until the lease ends, unless it is renewed.
    std::string member;      ///< The etcd member in use.
  };
  std::optional<Lead> lead = std::nullopt;  ///< Set if several processes compete for the lead.
};

/// Keeps a service's records and the keys of its jobs. Called on the service's thread. With
/// commits(), a record may become durable only after the call that made it. Until then the service
/// says nothing, so nobody is told of an epoch that could be given out again.
class JobJournal {
 public:
  virtual ~JobJournal() = default;

  /// The records that earlier services have left, to be asked for once before anything is told.
  virtual std::vector<JobRecord> load() = 0;
  virtual void job_opened(const std::string& job, std::uint64_t incarnation) = 0;
  virtual void epoch_closed(const std::string& job, std::uint64_t epoch) = 0;
  virtual void job_finished(const std::string& job, int exit_code) = 0;
  /// Forgets a job, save for its epoch and incarnation.
  virtual void job_forgotten(const std::string& job) = 0;
  /// An operator's drain of the job, or of the service for an empty name; nullopt: it is over. It
  /// is over, too, when the job finishes, is forgotten or opened anew.
  virtual void drained(const std::string& job, const std::optional<std::string>& why) = 0;
  /// Why no new job can be kept before somebody has done something; empty: it can.
  virtual std::string refusal() const = 0;
  /// Why records are refused now, or wait for long; empty: they do not.
  virtual std::string trouble() const = 0;

  /// A number that stands for the state kept here; it changes if the keys of earlier services are
  /// gone.
  virtual std::uint64_t memory() const = 0;
  /// The namespace of that epoch, with what earlier services have left in it. Asked for once.
  virtual store::KeptSpace space(const std::string& job, std::uint64_t incarnation,
                                 std::uint64_t epoch) = 0;
  /// Namespaces of earlier services that nobody has asked for may be dropped.
  virtual void forget_unclaimed() = 0;
  /// When records are durable; null: as soon as they are made.
  virtual store::Commits* commits() = 0;
  /// Since when nothing that is said leaves, because records before it are not durable; nullopt: it
  /// leaves.
  virtual std::optional<Clock::time_point> held_since() const = 0;
  /// Waits until what was recorded when commits()->recorded() was `recorded` is durable; false at
  /// the deadline. Any thread, while the journal lives.
  virtual bool await_durable(std::uint64_t recorded, Clock::time_point deadline) = 0;

  /// Begins a copy of the whole state under this name; backup() tells how it goes. Returns why none
  /// can be begun now; empty: it has begun.
  virtual std::string back_up(const std::string& name) = 0;
  virtual BackupStatus backup() const = 0;
  /// Nullopt if no state outlives the process.
  virtual std::optional<StateFigures> figures() const = 0;
};

/// Outlives a service, but not the process; keeps no keys.
class MemoryJournal final : public JobJournal {
 public:
  std::vector<JobRecord> load() override;
  void job_opened(const std::string& job, std::uint64_t incarnation) override;
  void epoch_closed(const std::string& job, std::uint64_t epoch) override;
  void job_finished(const std::string& job, int exit_code) override;
  void job_forgotten(const std::string& job) override;
  void drained(const std::string& job, const std::optional<std::string>& why) override;
  std::string refusal() const override { return {}; }
  std::string trouble() const override { return {}; }
  /// A new number for each service.
  std::uint64_t memory() const override;
  store::KeptSpace space(const std::string&, std::uint64_t, std::uint64_t) override { return {}; }
  void forget_unclaimed() override {}
  store::Commits* commits() override { return nullptr; }
  std::optional<Clock::time_point> held_since() const override { return std::nullopt; }
  bool await_durable(std::uint64_t, Clock::time_point) override { return true; }
  std::string back_up(const std::string&) override;
  BackupStatus backup() const override { return {}; }
  std::optional<StateFigures> figures() const override { return std::nullopt; }

 private:
  std::map<std::string, JobRecord> records_;
  JobRecord service_;  ///< Under a name that no job can have.
};

}  // namespace dlaunch::rendezvous
