#include "launcher/end_report.hpp"

namespace dlaunch::launcher {

rendezvous::WorkersEnded report_of(const Ended& end, const Assignment& assignment,
                                   const std::string& root_cause) {
  using Told = rendezvous::WorkersEnded::Outcome;
  rendezvous::WorkersEnded how;
  how.epoch = assignment.epoch;
  how.exit_code = end.exit_code;
  how.consequence = end.consequence;
  if (end.root_cause) how.root_cause = assignment.first_rank + *end.root_cause;
  switch (end.outcome) {
    case Outcome::succeeded:
      how.outcome = Told::succeeded;
      break;
    case Outcome::failed:
      how.outcome = Told::failed;
      how.sentence = root_cause;
      break;
    case Outcome::stopped:
    case Outcome::front_lost:
      how.outcome = Told::stopped;
      break;
    case Outcome::spawn_failed:
      how.outcome = Told::spawn_failed;
      how.sentence = "the workers of node rank " + std::to_string(assignment.node_rank) +
                     " could not be started";
      break;
  }
  return how;
}

JobEnd job_end(const Ended& last, int code, bool left, bool never_began) {
  if (never_began || (code != 0 && last.outcome == Outcome::succeeded)) {
    return {left ? Outcome::stopped : Outcome::failed, code};
  }
  if (last.outcome == Outcome::stopped && !left) {
    return {code == 0 ? Outcome::succeeded : Outcome::failed, code};
  }
  return {last.outcome, code};
}

}  // namespace dlaunch::launcher
