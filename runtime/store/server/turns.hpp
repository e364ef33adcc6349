#pragma once

#include "runtime/store/native/host.hpp"
#include "runtime/store/server/unsaved.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace dlaunch::store {

/// How long a job is served at a stretch when so many jobs have something to do: the more there
/// are, the less, so that none waits for long. A turn takes longer than this where one request
/// does.
constexpr std::chrono::microseconds turn_time(std::size_t jobs_due) {
  constexpr std::chrono::microseconds all{5000}, least{20}, most{500};
  const std::chrono::microseconds fair = all / std::max<std::size_t>(jobs_due, 1);
  return std::clamp(fair, least, most);
}

/// Decides which connection is served next: jobs take turns, however many connections each has, and
/// so do the connections within a job. Every other turn is for jobs that had nothing to do before:
/// one that says little need not wait for all those that ask without end. Pure: it knows neither
/// time nor sockets.
class Turns {
 public:
  /// A job's connections that have something to do. A connection holds it as long as it lives.
  class Job {
   public:
    Unsaved unsaved;
    /// The last change of the job, as Commits counts them.
    std::uint64_t last_change = 0;

    explicit Job(std::string name = {}) : name_(std::move(name)) {}
    const std::string& name() const { return name_; }

   private:
    friend class Turns;
    const std::string name_;
    std::deque<ConnectionId> waiting_;
    bool has_work_ = false;  ///< Of its own, beside what its connections have to say.
    bool listed_ = false;
  };

  /// The job of this name, new or not. `change` is that of a new one, which may have been here
  /// before.
  std::shared_ptr<Job> job(const std::string& name, std::uint64_t change = 0) {
    if (jobs_.size() >= sweep_at_) {
      std::erase_if(jobs_, [](const auto& each) { return each.second.expired(); });
      sweep_at_ = 2 * jobs_.size() + few_jobs;
    }
    std::weak_ptr<Job>& known = jobs_[name];
    auto job = known.lock();
    if (!job) {
      known = job = std::make_shared<Job>(name);
      job->last_change = change;
    }
    return job;
  }

  /// Adds a connection that has something to do. Not to be called again before it was served.
  void add(const std::shared_ptr<Job>& job, ConnectionId connection) {
    job->waiting_.push_back(connection);
    list(job);
  }

  /// Adds work of the job's own, which is done before its connections are served.
  void add_work(const std::shared_ptr<Job>& job) {
    list(job);
    job->has_work_ = true;
  }

  bool empty() const { return jobs_due() == 0; }
  /// How many jobs have something to do, and are not set aside.
  std::size_t jobs_due() const { return newly_due_.size() + still_due_.size(); }
  /// The job whose turn is next.
  const std::shared_ptr<Job>& next() const {
    return (is_for_new() ? newly_due_ : still_due_).front();
  }
  /// It has no turn until all that were set aside are called back.
  void set_aside() {
    Jobs& from = is_for_new() ? newly_due_ : still_due_;
    aside_.splice(aside_.end(), from, from.begin());
  }
  void call_back() { still_due_.splice(still_due_.end(), aside_); }
  /// How many names of jobs it holds.
  std::size_t known_jobs() const { return jobs_.size(); }

  /// Gives the next job its turn: `work` does its own work, if it has some, and returns false if
  /// more is left; `serve` gets its connections one after the other until none is left or it
  /// returns false. The rest waits behind the other jobs.
  template <class Work, class Serve>
  void serve_job(Work work, Serve serve) {
    Jobs& from = is_for_new() ? newly_due_ : still_due_;
    new_next_ = &from == &still_due_;
    const auto job = from.front();
    if (job->has_work_) job->has_work_ = !work(job);
    for (bool goes_on = true; goes_on && !job->has_work_ && !job->waiting_.empty();) {
      const ConnectionId next = job->waiting_.front();
      job->waiting_.pop_front();
      goes_on = serve(next);
    }
    if (job->waiting_.empty() && !job->has_work_) {
      job->listed_ = false;
      from.pop_front();
    } else {
      still_due_.splice(still_due_.end(), from, from.begin());
    }
  }

 private:
  /// In a list a job is moved without memory.
  using Jobs = std::list<std::shared_ptr<Job>>;
  void list(const std::shared_ptr<Job>& job) {
    if (job->listed_) return;
    newly_due_.push_back(job);
    job->listed_ = true;
  }
  bool is_for_new() const { return still_due_.empty() || (new_next_ && !newly_due_.empty()); }

  static constexpr std::size_t few_jobs = 64;
  /// Those that had nothing to do, those that were not done after a turn, and those set aside.
  Jobs newly_due_, still_due_, aside_;
  bool new_next_ = true;
  /// Those of jobs without a connection go when there are twice as many as were left.
  std::map<std::string, std::weak_ptr<Job>> jobs_;
  std::size_t sweep_at_ = few_jobs;
};

}  // namespace dlaunch::store
