#include "rendezvous/service/job_journal.hpp"

#include "runtime/base/os/random.hpp"

#include <algorithm>

namespace dlaunch::rendezvous {

std::vector<JobRecord> MemoryJournal::load() {
  std::vector<JobRecord> records;
  if (service_.incarnation > 0 || service_.drained) records.push_back(service_);
  for (const auto& [job, record] : records_) records.push_back(record);
  return records;
}

void MemoryJournal::job_opened(const std::string& job, std::uint64_t incarnation) {
  JobRecord& record = records_[job];
  record.job = job;
  record.incarnation = incarnation;
  record.exit_code.reset();
  record.drained.reset();
}

void MemoryJournal::epoch_closed(const std::string& job, std::uint64_t epoch) {
  records_[job].epoch = epoch;
}

void MemoryJournal::job_finished(const std::string& job, int exit_code) {
  records_[job].exit_code = exit_code;
  records_[job].drained.reset();
}

void MemoryJournal::job_forgotten(const std::string& job) {
  const auto found = records_.find(job);
  if (found == records_.end()) return;
  service_.incarnation = std::max(service_.incarnation, found->second.incarnation);
  service_.epoch = std::max(service_.epoch, found->second.epoch);
  records_.erase(found);
}

void MemoryJournal::drained(const std::string& job, const std::optional<std::string>& why) {
  (job.empty() ? service_ : records_[job]).drained = why;
}

std::uint64_t MemoryJournal::memory() const { return random_number(); }

std::string MemoryJournal::back_up(const std::string&) {
  return "the state is in memory alone, and is gone when dlaunchd ends: there is nothing to save";
}

}  // namespace dlaunch::rendezvous
