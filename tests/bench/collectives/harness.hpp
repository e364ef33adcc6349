// Measures every contestant of the collectives comparison: ours, the peers', the floors'.
//
// An operation of one size is verified once, warmed up while it is found how many calls take about
// --rep-ms, and then repeated --reps times, each time begun by a barrier. A repetition costs what
// its slowest rank took for one call; told are the median, the least and the most. Broadcast has
// another root in every call, so that a root cannot run ahead. A ping-pong is half a round trip.
// Started calls are all_reduces: `started` is waited for at once, `started_test` is
// tested until it is complete, `started_window` is one of many on several communicators,
// `started_then_blocking` is one of many of which the first is started, and of `started_computing`
// the wait comes after two milliseconds that are part of its time.
// Sizes are bytes of the whole vector; elements are floats.
//
// Also compiled by the peers' own compilers: nothing of ours is included.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace contest {

using Call = std::function<void(long turn)>;

/// Started calls: so many at a time, over so many communicators, of so many elements at most.
constexpr int started_window = 16;
constexpr std::size_t window_communicators = 4;
constexpr int window_elements = 16;

/// What a program does while a call goes on: two milliseconds of its own.
inline void compute() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
  while (std::chrono::steady_clock::now() < until) continue;
}

/// The buffers of an operation, page-aligned. In place: `in` alone.
struct Buffers {
  float* in = nullptr;
  float* out = nullptr;
};

/// One rank of one contestant.
class Contestant {
 public:
  Contestant() = default;
  Contestant(const Contestant&) = delete;
  Contestant& operator=(const Contestant&) = delete;
  virtual ~Contestant() = default;

  virtual void barrier() = 0;
  /// Everyone's `count` numbers, in the order of the ranks.
  virtual void share(const double* mine, double* all, int count) = 0;
  /// The ways in which it can do an operation; each is measured.
  virtual std::vector<std::string> ways(const std::string&) { return {""}; }
  /// The operation; empty where it is not offered this way, or not for this size.
  virtual Call call(const std::string& op, const std::string& way, std::size_t bytes,
                    const Buffers& buffers) = 0;
  /// The buffers for this way of an operation.
  virtual Buffers buffers_for(const std::string&, const Buffers& ordinary, std::size_t) {
    return ordinary;
  }
  virtual float* allocate(std::size_t bytes) {
    void* memory = std::aligned_alloc(4096, bytes);
    if (memory == nullptr) std::abort();
    return static_cast<float*>(memory);
  }

  int rank = 0;
  int size = 1;
};

inline int variable(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? std::atoi(value) : otherwise;
}
inline std::string variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? value : otherwise;
}

inline std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> found;
  std::stringstream in(list);
  for (std::string word; std::getline(in, word, ',');) found.push_back(word);
  return found;
}

inline std::size_t bytes_of(const std::string& text) {
  const std::size_t unit = text.back() == 'K' ? 1024 : text.back() == 'M' ? 1048576 : 1;
  return static_cast<std::size_t>(std::atoll(text.c_str())) * unit;
}

struct Arguments {
  std::vector<std::string> ops = {"barrier"};
  std::vector<std::size_t> sizes = {4};
  int repetitions = 9;
  double repetition_s = 0.03;
  bool pin = false;  ///< Rank r on core r, once the contestant is set up.
};

inline Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--ops") {
      arguments.ops = words(value);
    } else if (name == "--sizes") {
      arguments.sizes.clear();
      for (const auto& word : words(value)) arguments.sizes.push_back(bytes_of(word));
    } else if (name == "--reps") {
      arguments.repetitions = std::atoi(value.c_str());
    } else if (name == "--rep-ms") {
      arguments.repetition_s = std::atof(value.c_str()) * 1e-3;
    } else if (name == "--pin") {
      arguments.pin = value == "1";
    } else {
      std::fprintf(stderr, "unknown option %s\n", name.c_str());
      std::exit(64);
    }
  }
  return arguments;
}

inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double largest(Contestant& who, double mine) {
  std::vector<double> all(static_cast<std::size_t>(who.size));
  who.share(&mine, all.data(), 1);
  return *std::max_element(all.begin(), all.end());
}

/// Messages that are under way at a time; told is the time of one.
constexpr int window = 64;

/// The rank with which this one exchanges in that call of random_pairs; -1: with none. The same as
/// `dlaunch bench` has, so that all contestants have the same pairs.
inline int partner(int rank, int ranks, long turn) {
  const int round = std::max(1, ranks % 2 == 0 ? ranks - 1 : ranks);
  auto mixed = static_cast<unsigned long long>(turn) * 0x9e3779b97f4a7c15ULL;
  mixed = (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9ULL;
  const int pairing = static_cast<int>((mixed >> 33) % static_cast<unsigned long long>(round));
  const auto opposite = [&](int other) { return (pairing + round - other) % round; };
  if (ranks % 2 == 0 && rank == ranks - 1) {
    for (int other = 0; other < round; ++other) {
      if (opposite(other) == other) return other;
    }
    return -1;
  }
  if (opposite(rank) != rank) return opposite(rank);
  return ranks % 2 == 0 ? ranks - 1 : -1;
}
/// The tag of that call of fan_in, so that a rank that is a call ahead is kept out.
inline int fan_in_tag(long turn) { return static_cast<int>(turn % 32768); }

/// The value that rank r puts at place i.
inline float value(int rank, std::size_t i) {
  return static_cast<float>((rank + 1) * 3 + static_cast<int>(i % 11));
}

/// Makes one call and compares every element of its result.
inline bool verified(Contestant& who, const std::string& op, const Call& call, std::size_t bytes,
                     const Buffers& buffers) {
  const auto ranks = static_cast<std::size_t>(who.size), me = static_cast<std::size_t>(who.rank);
  const std::size_t count = bytes / sizeof(float), part = count / ranks;
  for (std::size_t i = 0; i < count; ++i) buffers.in[i] = value(who.rank, i);
  std::memset(buffers.out, 0, bytes);
  if (op == "broadcast" && who.rank != 0) std::memset(buffers.in, 0, bytes);
  who.barrier();
  call(0);
  const auto sum = [&](std::size_t i) {
    float all = 0;
    for (int rank = 0; rank < who.size; ++rank) all += value(rank, i);
    return all;
  };
  bool right = true;
  for (std::size_t i = 0; i < count; ++i) {
    const int source = part == 0 ? 0 : static_cast<int>(i / part);
    const std::size_t within = part == 0 ? 0 : i % part;
    const bool sums =
        op == "all_reduce" || op == "started" || op == "started_test" || op == "started_computing";
    if (sums) right &= buffers.in[i] == sum(i);
    if (op == "broadcast") right &= buffers.in[i] == value(0, i);
    if (op == "all_gather") right &= buffers.out[i] == value(source, within);
    if (op == "reduce_scatter") right &= i >= part || buffers.out[i] == sum(me * part + i);
    if (op == "all_to_all") right &= buffers.out[i] == value(source, me * part + within);
    if (op == "ping_pong" || op == "window") {
      right &= who.rank > 1 || buffers.out[i] == value(1 - who.rank, i);
    }
    if (op == "random_pairs") {
      const int with = partner(who.rank, who.size, 0);
      right &= with < 0 || buffers.out[i] == value(with, i);
    }
    if (op == "halo") {
      // What the left one gave to its right, and the right one to its left.
      const std::size_t half = count / 2;
      const bool from_left = i < half;
      const int giver = (who.rank + (from_left ? who.size - 1 : 1)) % who.size;
      right &= i >= 2 * half || buffers.out[i] == value(giver, from_left ? half + i : i - half);
    }
  }
  if (op == "fan_in" && who.rank == 0) {
    // Each other rank's part is there once, wherever it came.
    std::vector<bool> seen(ranks, false);
    for (std::size_t at = 0; at + 1 < ranks; ++at) {
      const float* const came = buffers.out + at * part;
      const int source = static_cast<int>(came[0]) / 3 - 1;
      right &= source > 0 && source < who.size && !seen[static_cast<std::size_t>(source)];
      if (!right) break;
      seen[static_cast<std::size_t>(source)] = true;
      for (std::size_t i = 0; i < part; ++i) right &= came[i] == value(source, i);
    }
  }
  return largest(who, right ? 0 : 1) == 0;
}

/// Seconds that one call takes here, of `calls` in a row.
inline double timed(Contestant& who, const Call& call, long calls, long& turn) {
  who.barrier();
  const double begin = seconds();
  for (long i = 0; i < calls; ++i) call(turn++);
  return (seconds() - begin) / static_cast<double>(calls);
}

inline void measure(Contestant& who, const Arguments& arguments, const std::string& op,
                    const std::string& way, std::size_t bytes, const Buffers& buffers) {
  constexpr double row_s_max = 4;
  const Call call = who.call(op, way, bytes, buffers);
  if (!call) return;
  const bool right = verified(who, op, call, bytes, buffers);
  std::memset(buffers.in, 0, std::max<std::size_t>(bytes, sizeof(float)));
  long turn = 0, calls = 1;
  double one = 0;
  for (;; calls *= 4) {
    one = largest(who, timed(who, call, calls, turn));
    if (one * static_cast<double>(calls) > arguments.repetition_s / 4) break;
  }
  calls = std::max(1L, static_cast<long>(arguments.repetition_s / one));
  const double repetition_s = one * static_cast<double>(calls);
  const int repetitions =
      std::min(arguments.repetitions, std::max(3, static_cast<int>(row_s_max / repetition_s)));
  std::vector<double> costs;
  for (int i = 0; i < repetitions; ++i) {
    costs.push_back(largest(who, timed(who, call, calls, turn)) * 1e6);
    if (op == "ping_pong") costs.back() /= 2;
    if (op == "started_window" || op == "started_then_blocking") costs.back() /= started_window;
    if (op == "window") costs.back() /= 2 * window;
  }
  std::sort(costs.begin(), costs.end());
  if (who.rank != 0) return;
  std::printf(
      "{\"op\": \"%s\", \"way\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"us\": %.6g, "
      "\"us_least\": %.6g, \"us_most\": %.6g, \"right\": %s}\n",
      op.c_str(), way.c_str(), who.size, bytes, costs[costs.size() / 2], costs.front(),
      costs.back(), right ? "true" : "false");
  std::fflush(stdout);
}

inline int run(Contestant& who, int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  if (arguments.pin) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<unsigned>(who.rank), &cores);
    sched_setaffinity(0, sizeof cores, &cores);
  }
  const std::size_t unit = sizeof(float) * static_cast<std::size_t>(who.size);
  const std::size_t most = *std::max_element(arguments.sizes.begin(), arguments.sizes.end());
  const std::size_t room = (std::max(most, unit) + 4095) / 4096 * 4096;
  const Buffers ordinary{who.allocate(room), who.allocate(room)};
  std::memset(ordinary.in, 0, room);
  std::memset(ordinary.out, 0, room);
  for (const auto& op : arguments.ops) {
    for (const auto& way : who.ways(op)) {
      const Buffers buffers = who.buffers_for(way, ordinary, room);
      if (op.rfind("barrier", 0) == 0) {
        measure(who, arguments, op, way, 0, buffers);
        continue;
      }
      const bool parts =
          op == "all_gather" || op == "reduce_scatter" || op == "all_to_all" || op == "fan_in";
      for (const std::size_t asked : arguments.sizes) {
        const std::size_t bytes = parts ? std::max(unit, asked / unit * unit) : asked;
        measure(who, arguments, op, way, bytes, buffers);
      }
    }
  }
  return 0;
}

}  // namespace contest
