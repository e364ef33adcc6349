#pragma once

#include "rendezvous/state/state_contents.hpp"

#include <string>

namespace dlaunch::testing {

/// Everything that a place holds, to be compared.
inline std::string shown(const rendezvous::StateContents& contents) {
  std::string out = "memory " + std::to_string(contents.memory) + "\n";
  for (const auto& job : contents.jobs) {
    out += "job " + job.job + " " + std::to_string(job.incarnation) + " " +
           std::to_string(job.epoch) + " " +
           (job.exit_code ? std::to_string(*job.exit_code) : "-") +
           (job.drained ? " " + *job.drained : "") + "\n";
  }
  for (const auto& [name, space] : contents.spaces) {
    out += "space " + name.job + " " + std::to_string(name.incarnation) + " " +
           std::to_string(name.epoch) + " " + std::to_string(space.number) + "\n";
    for (const auto& key : space.contents.keys) {
      out += "key " + key.key + "=" + std::string(as_text(key.value)) + " " +
             std::to_string(key.owner) + " " + std::to_string(key.lease.count()) + "\n";
    }
    for (const auto& [queue, value] : space.contents.entries) {
      out += "entry " + queue + " " + std::string(as_text(value)) + "\n";
    }
    for (const auto& round : space.contents.rounds) {
      out += "round " + round.name + " " + std::to_string(round.round) + " " +
             (round.block ? std::string(as_text(*round.block)) : "-") + round.too_big + "\n";
    }
    for (const auto& answer : space.contents.answers) {
      out += "answer " + std::to_string(answer.session) + " " + std::to_string(answer.request) +
             " " + std::string(as_text(answer.payload)) + "\n";
    }
  }
  return out;
}

}  // namespace dlaunch::testing
