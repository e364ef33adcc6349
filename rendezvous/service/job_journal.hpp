#pragma once

#include "runtime/store/native/space_journal.hpp"
#include "runtime/store/server/commits.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::rendezvous {

/// A record that must outlive a service, so that the next one never uses an epoch again.
struct JobRecord {
  std::string job;
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 0;       ///< The last that was closed; 0: none yet.
  std::optional<int> exit_code;  ///< Set for a finished job.

  bool operator==(const JobRecord&) const = default;
};

/// What is kept can be kept no more. Thrown by the io_context's run(), after which nothing may be
/// said to anybody.
class StateLost : public Error {
 public:
  using Error::Error;
};

/// A service keeps its records here, and the keys of its jobs. Called on the service's thread. With
/// commits(), a record may become durable after the call that made it: the service says nothing
/// before, so nobody is told of an epoch that could be given away again.
class JobJournal {
 public:
  virtual ~JobJournal() = default;

  /// The records that earlier services have left, to be asked for once before anything is told.
  virtual std::vector<JobRecord> load() = 0;
  virtual void job_opened(const std::string& job, std::uint64_t incarnation) = 0;
  virtual void epoch_closed(const std::string& job, std::uint64_t epoch) = 0;
  virtual void job_finished(const std::string& job, int exit_code) = 0;
  /// It will not be asked for any more, save for its epoch and incarnation.
  virtual void job_forgotten(const std::string& job) = 0;
  /// Why no new job can be kept now; empty: it can.
  virtual std::string refusal() const = 0;

  /// Names what is kept here: another number where the keys of earlier services are gone.
  virtual std::uint64_t memory() const = 0;
  /// The namespace of that epoch, with what earlier services have left in it. Asked for once.
  virtual store::KeptSpace space(const std::string& job, std::uint64_t incarnation,
                                 std::uint64_t epoch) = 0;
  /// The namespaces of earlier services that nobody has asked for may go.
  virtual void forget_unclaimed() = 0;
  /// When records are durable; null: as soon as they are made.
  virtual store::Commits* commits() = 0;
};

/// Outlives a service, but not the process; keeps no keys.
class MemoryJournal final : public JobJournal {
 public:
  std::vector<JobRecord> load() override;
  void job_opened(const std::string& job, std::uint64_t incarnation) override;
  void epoch_closed(const std::string& job, std::uint64_t epoch) override;
  void job_finished(const std::string& job, int exit_code) override;
  void job_forgotten(const std::string& job) override;
  std::string refusal() const override { return {}; }
  /// Another one for each service.
  std::uint64_t memory() const override;
  store::KeptSpace space(const std::string&, std::uint64_t, std::uint64_t) override { return {}; }
  void forget_unclaimed() override {}
  store::Commits* commits() override { return nullptr; }

 private:
  std::map<std::string, JobRecord> records_;
  /// The highest of what is forgotten, under a name that no job can have.
  JobRecord forgotten_;
};

}  // namespace dlaunch::rendezvous
