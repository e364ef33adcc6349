#pragma once

#include "collectives/bench/calls.hpp"
#include "collectives/bench/options.hpp"

#include <dlaunch/communicator.hpp>

#include <cstdint>
#include <functional>
#include <vector>

namespace dlaunch::bench {

/// One line of the table. Times in microseconds, of one call; of one of its messages where they
/// follow each other.
struct Row {
  Op op = Op::barrier;
  Amount amount;
  double time_us = 0;  ///< Median over the repetitions of the slowest rank's mean.
  double least_us = 0, most_us = 0;
  double p50_us = 0, p99_us = 0, max_us = 0;  ///< Single calls; the slowest rank's.
  double host_us = 0;       ///< With a device: until a call has returned, which may go on there.
  std::uint64_t wrong = 0;  ///< Elements, on all ranks.
  long iterations = 0;      ///< Calls of one repetition.
  int repetitions = 0;
};

/// Bytes a second, in units of 1e9; 0 for what moves nothing.
double algorithm_bandwidth(const Row& row);
double bus_bandwidth(const Row& row, int ranks);

/// The rows of one operation: sizes that round to the same are measured once, a barrier has one,
/// and one rank has no messages. Pure.
std::vector<Amount> amounts_for(const Operation& operation, const Settings& settings, int ranks);

/// Measures everything that was asked for, in memory for largest_message() each. Every rank calls
/// it with the same settings and gets the same rows; `told` gets each as it is there. Throws what
/// the calls throw.
std::vector<Row> measure(Communicator& communicator, const Settings& settings, Arena& in,
                         Arena& out, const std::function<void(const Row&)>& told);

/// The value below which `part` (0..1) of them lie, by nearest rank. At least one value. Pure.
double quantile(std::vector<double> values, double part);

}  // namespace dlaunch::bench
