#pragma once

#include "rendezvous/rounds/job.hpp"

namespace dlaunch::rendezvous {

/// Judges which nodes may come in; changes nothing. A node is refused if its rules make no sense or
/// differ from the job's, if its place is another's, or if it belongs to a second job under the
/// same id.
class Door {
 public:
  /// The job is borrowed.
  explicit Door(const JobState& job) : job_(job) {}

  /// A join that makes no sense, in any job.
  static std::optional<Refuse> nonsense(const Join& e);
  std::optional<Refuse> objection(const Join& e) const;
  /// Refusals for waiting nodes that are of a second job, or too many.
  std::vector<Refuse> second_jobs() const;
  /// "; the job 'red' has run for 12 min on 2 nodes, a and b: another job needs another --rdzv-id".
  std::string or_another_job() const;

  // ---- An epoch that began before this rendezvous did ----
  /// Whether a rendezvous that was started anew may take the node's epoch up again.
  bool adoptable(const Holding& held) const;
  /// Why this claim does not fit the claims of others of the same epoch.
  std::optional<Refuse> contradiction(const Join& e) const;

 private:
  std::optional<std::string> taken(const NodeOffer& offer) const;
  const Participant* holder_of(int node_rank) const;
  bool is_ours(const NodeOffer& offer) const;
  std::optional<std::string> of_second_job(const NodeOffer& offer) const;
  bool is_useless(const NodeOffer& offer) const;
  bool is_one_too_many(const NodeOffer& offer) const;
  Refuse second_job(Session session, const std::string& why) const;
  std::string job_here() const;

  const JobState& job_;
};

}  // namespace dlaunch::rendezvous
