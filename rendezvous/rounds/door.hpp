#pragma once

#include "rendezvous/rounds/job.hpp"

namespace dlaunch::rendezvous {

/// Judges who may come in; changes nothing. A node may ask for what makes no sense, or is not what
/// the job has, stand in another's place, or belong to a second job under the same id.
class Door {
 public:
  /// The job is borrowed.
  explicit Door(const JobState& job) : job_(job) {}

  /// A join that makes no sense, in any job.
  static std::optional<Refuse> nonsense(const Join& e);
  std::optional<Refuse> objection(const Join& e) const;
  /// The nodes that wait and are of a second job, or too many.
  std::vector<Refuse> second_jobs() const;
  /// "; the job 'red' has run for 12 min on 2 nodes, a and b: another job needs another --rdzv-id".
  std::string or_another_job() const;

  // ---- An epoch that began before this rendezvous did ----
  /// The rendezvous was started anew and takes the node's epoch up again.
  bool adoptable(const Holding& held) const;
  /// How this claim does not fit to what others of the same epoch have claimed.
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
