#include "collectives/bench/measure.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace dlaunch::bench {

namespace {

using Micros = std::chrono::duration<double, std::micro>;

constexpr long calibration_max = 1L << 30;  ///< Calls.
constexpr long calibration_growth = 4;      ///< From one trial to the next.
/// The fewest repetitions, for a row that would take longer than row_time_max.
constexpr int repetitions_min = 3;
constexpr Micros row_time_max = std::chrono::seconds(6);
constexpr Micros singles_time = std::chrono::milliseconds(250);
constexpr long singles_min = 10;
constexpr long singles_max = 20'000;

/// The measurement of one row.
class Bench {
 public:
  Bench(Communicator& communicator, const Settings& settings, const Operation& operation,
        const Amount& amount, Arena& in, Arena& out)
      : communicator_(communicator),
        settings_(settings),
        operation_(operation),
        calls_(communicator, settings, operation, amount, in, out) {
    row_.op = operation.op;
    row_.amount = amount;
  }

  Row run() {
    wrong_ += verify(settings_.check ? Depth::every_element : Depth::sample);
    for (int i = 0; i < settings_.warmup; ++i) calls_(turn_++);
    calls_.finish();
    calibrate();
    repeat();
    single();
    std::uint64_t wrong[] = {wrong_};
    communicator_.all_reduce(wrong);
    row_.wrong = wrong[0];
    for (double* time : {&row_.time_us, &row_.least_us, &row_.most_us, &row_.p50_us, &row_.p99_us,
                         &row_.max_us, &row_.host_us}) {
      *time /= operation_.messages;
    }
    return row_;
  }

 private:
  void meet() { communicator_.barrier(); }

  std::uint64_t verify(Depth depth) {
    meet();
    return calls_.verify(turn_++, depth);
  }

  /// The time of one call out of `calls` in a row, which all ranks begin together.
  Micros time(long calls) {
    meet();
    const auto begin = Clock::now();
    for (long i = 0; i < calls; ++i) calls_(turn_++);
    host_ = Micros(Clock::now() - begin) / static_cast<double>(calls);
    calls_.finish();
    return Micros(Clock::now() - begin) / static_cast<double>(calls);
  }

  /// The slowest rank's value.
  void slowest(std::span<double> values) { communicator_.all_reduce(values, ReduceOp::max); }
  Micros slowest(Micros value) {
    double values[] = {value.count()};
    slowest(values);
    return Micros(values[0]);
  }

  /// Finds how many calls make a repetition. All ranks find the same.
  void calibrate() {
    const Micros wanted = settings_.repetition_time;
    long trial = settings_.iterations.value_or(1);
    call_ = slowest(time(trial));
    while (!settings_.iterations && call_ * trial < wanted / 4 && trial < calibration_max) {
      trial *= calibration_growth;
      call_ = slowest(time(trial));
    }
    const auto fitting = static_cast<long>(wanted / std::max(call_, Micros(1e-3)));
    row_.iterations = settings_.iterations.value_or(std::clamp(fitting, 1L, calibration_max));
    row_.repetitions = settings_.repetitions;
    const Micros all = call_ * row_.iterations * row_.repetitions;
    if (all > row_time_max) {
      const auto affordable = static_cast<int>(row_time_max / (call_ * row_.iterations));
      row_.repetitions = std::min(row_.repetitions, std::max(repetitions_min, affordable));
    }
  }

  void repeat() {
    std::vector<double> times, hosts;
    for (int i = 0; i < row_.repetitions; ++i) {
      times.push_back(time(row_.iterations).count());
      hosts.push_back(host_.count());
      if (settings_.check) wrong_ += verify(Depth::every_element);
    }
    slowest(times);
    slowest(hosts);
    row_.time_us = quantile(times, 0.5);
    row_.host_us = quantile(hosts, 0.5);
    row_.least_us = *std::min_element(times.begin(), times.end());
    row_.most_us = *std::max_element(times.begin(), times.end());
  }

  /// Measures the spread of single calls: a mean hides the few slow ones.
  void single() {
    const auto fitting = static_cast<long>(singles_time / std::max(call_, Micros(1e-3)));
    const long timed = row_.iterations * row_.repetitions;
    const long calls = std::clamp(std::min(fitting, timed), singles_min, singles_max);
    std::vector<double> times;
    times.reserve(static_cast<std::size_t>(calls));
    meet();
    for (long i = 0; i < calls; ++i) {
      const auto begin = Clock::now();
      calls_(turn_++);
      calls_.finish();
      times.push_back(Micros(Clock::now() - begin).count());
    }
    double spread[] = {quantile(times, 0.5), quantile(times, 0.99),
                       *std::max_element(times.begin(), times.end())};
    slowest(spread);
    row_.p50_us = spread[0];
    row_.p99_us = spread[1];
    row_.max_us = spread[2];
  }

  Communicator& communicator_;
  const Settings& settings_;
  const Operation& operation_;
  Calls calls_;
  long turn_ = 0;
  Micros call_{0};  ///< The time one call takes, about.
  Micros host_{0};  ///< The host's time for one, in the last repetition.
  std::uint64_t wrong_ = 0;
  Row row_;
};

}  // namespace

double algorithm_bandwidth(const Row& row) {
  if (row.amount.bytes == 0) return 0;
  return static_cast<double>(row.amount.bytes) / row.time_us * 1e-3;
}

double bus_bandwidth(const Row& row, int ranks) {
  return algorithm_bandwidth(row) * bus_factor(operation(row.op), ranks);
}

double quantile(std::vector<double> values, double part) {
  const auto last = static_cast<double>(values.size() - 1);
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::llround(part * last));
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

std::vector<Amount> amounts_for(const Operation& entry, const Settings& settings, int ranks) {
  std::vector<Amount> amounts;
  if (entry.needs_another() && ranks < 2) return amounts;
  for (const std::size_t size : settings.sizes) {
    const Amount amount = amount_for(entry, size, size_of(settings.dtype), ranks);
    // Sizes that round to the same are measured once; a barrier has one.
    if (amounts.empty() || !(amounts.back() == amount)) amounts.push_back(amount);
  }
  return amounts;
}

std::vector<Row> measure(Communicator& communicator, const Settings& settings, Arena& in,
                         Arena& out, const std::function<void(const Row&)>& told) {
  const int ranks = communicator.size();
  std::vector<Row> rows;
  for (const Op op : settings.ops) {
    const Operation& entry = operation(op);
    for (const Amount& amount : amounts_for(entry, settings, ranks)) {
      rows.push_back(Bench(communicator, settings, entry, amount, in, out).run());
      if (told) told(rows.back());
    }
  }
  return rows;
}

}  // namespace dlaunch::bench
