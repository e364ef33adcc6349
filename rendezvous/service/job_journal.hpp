#pragma once

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

/// A service keeps its records here. Called on the service's thread. Each call returns when its
/// record is as durable as this journal makes anything, and throws Error when it cannot be: nobody
/// is told of an epoch that could be given away again.
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
};

/// Outlives a service, but not the process.
class MemoryJournal final : public JobJournal {
 public:
  std::vector<JobRecord> load() override;
  void job_opened(const std::string& job, std::uint64_t incarnation) override;
  void epoch_closed(const std::string& job, std::uint64_t epoch) override;
  void job_finished(const std::string& job, int exit_code) override;
  void job_forgotten(const std::string& job) override;

 private:
  std::map<std::string, JobRecord> records_;
  /// The highest of what is forgotten, under a name that no job can have.
  JobRecord forgotten_;
};

}  // namespace dlaunch::rendezvous
