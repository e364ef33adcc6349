#include "rendezvous/service/job_journal.hpp"

#include "runtime/base/os/random.hpp"

#include <algorithm>

namespace dlaunch::rendezvous {

std::vector<JobRecord> MemoryJournal::load() {
  std::vector<JobRecord> records;
  if (forgotten_.incarnation > 0) records.push_back(forgotten_);
  for (const auto& [job, record] : records_) records.push_back(record);
  return records;
}

void MemoryJournal::job_opened(const std::string& job, std::uint64_t incarnation) {
  JobRecord& record = records_[job];
  record.job = job;
  record.incarnation = incarnation;
  record.exit_code.reset();
}

void MemoryJournal::epoch_closed(const std::string& job, std::uint64_t epoch) {
  records_[job].epoch = epoch;
}

void MemoryJournal::job_finished(const std::string& job, int exit_code) {
  records_[job].exit_code = exit_code;
}

void MemoryJournal::job_forgotten(const std::string& job) {
  const auto found = records_.find(job);
  if (found == records_.end()) return;
  forgotten_.incarnation = std::max(forgotten_.incarnation, found->second.incarnation);
  forgotten_.epoch = std::max(forgotten_.epoch, found->second.epoch);
  records_.erase(found);
}

std::uint64_t MemoryJournal::memory() const { return random_number(); }

}  // namespace dlaunch::rendezvous
