// Messages in all ways at once, by seeds: synchronous or not, received, probed, matched, given back
// and taken back, waited for together and looked at. Each receive gets the message that is due, and
// none is left. DLAUNCH_TEST_FULL=1 runs twenty times as many.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <list>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::require;
using testing::run_ranks;

namespace {

using Data = std::vector<std::uint8_t>;

constexpr int tags = 3, messages = 25;
/// The last one is too large to be parked, and rare.
constexpr std::array<std::size_t, 8> sizes{0, 1, 8, 64, 1000, 20000, 300000, 18u << 20};

struct Planned {
  int tag = 0;
  std::size_t bytes = 0;
  bool is_synchronous = false;
  int number = 0;  ///< Among those of this source and tag.

  Data content(int source) const {
    const auto first = static_cast<unsigned>(source * 31 + tag * 7 + number);
    Data data(bytes);
    for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::uint8_t>(first + i % 251);
    return data;
  }
};

/// What a rank sends to another in one story; both know it.
std::deque<Planned> plan_of(unsigned seed, int from, int to) {
  std::mt19937 random(seed * 7919 + static_cast<unsigned>(from * 131 + to));
  std::array<int, tags> numbers{};
  std::deque<Planned> plan;
  for (int i = 0; i < messages; ++i) {
    const auto tag = random() % tags;
    const bool is_huge = random() % 64 == 0;
    const std::size_t bytes = is_huge ? sizes.back() : sizes[random() % (sizes.size() - 1)];
    plan.push_back({static_cast<int>(tag), bytes, random() % 4 == 0, numbers[tag]++});
  }
  return plan;
}

/// One rank of a story, whose moves are drawn.
class Rank {
 public:
  Rank(Communicator& comm, unsigned seed)
      : comm_(comm), random_(seed * 1000003 + static_cast<unsigned>(comm.rank())) {
    for (int other = 0; other < comm.size(); ++other) {
      if (other == comm.rank()) continue;
      to_send_.emplace_back(other, plan_of(seed, comm.rank(), other));
      for (int tag = 0; tag < tags; ++tag) ways_.emplace_back(other, tag);
      for (const Planned& each : plan_of(seed, other, comm.rank())) {
        ways_[ways_.size() - tags + static_cast<std::size_t>(each.tag)].due.push_back(each);
      }
    }
  }

  void run() {
    while (!is_over()) {
      move();
      collect();
    }
    for (Work& probe : probes_) {
      if (!probe.cancel()) require(probe.done(), "a probe is neither complete nor taken back");
    }
    probes_.clear();
    std::vector<Work*> left;
    for (Sent& each : sent_) left.push_back(&each.work);
    if (one_of(2)) {
      while (!test_all(left)) continue;
    }
    wait_all(left);
    comm_.barrier();
    require(!comm_.try_probe(any_source, {.tag = any_tag}), "a message is left");
    comm_.barrier();
  }

 private:
  struct Sent {
    Data data;
    Work work;
  };
  struct Posted {
    Data data;
    Work work;
  };
  /// The messages of one source with one tag, which come in order.
  struct Way {
    Way(int of, int by) : source(of), tag(by) {}
    int source, tag;
    std::deque<Planned> due;
    std::list<Posted> posted;
  };

  unsigned one_of(std::size_t count) { return static_cast<unsigned>(random_() % count); }
  bool is_over() const {
    const auto has_none = [](const Way& way) { return way.due.empty(); };
    return to_send_.empty() && std::all_of(ways_.begin(), ways_.end(), has_none);
  }

  void move() {
    if (!to_send_.empty()) send_one();
    Way& way = ways_[one_of(ways_.size())];
    switch (one_of(8)) {
      case 0:
      case 1:
      case 2:
        return post(way);
      case 3:
        probes_.push_back(comm_.start_probe(way.source, {.tag = one_of(2) ? way.tag : any_tag}));
        return;
      case 4:
        return take_one_back(way);
      case 5:
        return match(way);
      default:
        return look();
    }
  }

  void send_one() {
    const auto place = to_send_.begin() + one_of(to_send_.size());
    auto& [to, plan] = *place;
    const Planned next = plan.front();
    plan.pop_front();
    Sent& sent = sent_.emplace_back();
    sent.data = next.content(comm_.rank());
    sent.work = next.is_synchronous ? comm_.issend(sent.data, to, {.tag = next.tag})
                                    : comm_.isend(sent.data, to, {.tag = next.tag});
    if (plan.empty()) to_send_.erase(place);
  }

  void post(Way& way) {
    if (way.posted.size() >= way.due.size()) return;
    Posted& posted = way.posted.emplace_back();
    // Those that are taken back change which message it will be.
    const auto larger = [](const Planned& a, const Planned& b) { return a.bytes < b.bytes; };
    posted.data.resize(std::max_element(way.due.begin(), way.due.end(), larger)->bytes);
    posted.work = comm_.irecv_up_to(posted.data, way.source, {.tag = way.tag});
  }

  void take_one_back(Way& way) {
    if (way.posted.empty()) return;
    const auto which = std::next(way.posted.begin(), one_of(way.posted.size()));
    if (which->work.cancel()) way.posted.erase(which);
  }

  void match(Way& way) {
    if (!way.posted.empty() || way.due.empty()) return;
    auto message = comm_.try_match(way.source, {.tag = way.tag});
    if (!message || one_of(3) == 0) return;
    Data data(message->what().count);
    take(way, comm_.recv_matched(std::move(*message), data), data);
  }

  /// Waits for some of what was started for a moment, or looks at it.
  void look() {
    std::vector<Work*> works;
    const auto add = [&](Work& work) {
      if (one_of(3) == 0) works.push_back(&work);
    };
    for (Sent& each : sent_) add(each.work);
    for (Work& each : probes_) add(each);
    for (Way& way : ways_) {
      for (Posted& each : way.posted) add(each.work);
    }
    if (works.empty()) return;
    std::shuffle(works.begin(), works.end(), random_);
    switch (one_of(5)) {
      case 0:
        return static_cast<void>(wait_any(works, 1ms));
      case 1:
        return static_cast<void>(wait_some(works, 1ms));
      case 2:
        return static_cast<void>(test_all(works));
      case 3:
        return static_cast<void>(test_any(works));
      default:
        return static_cast<void>(works.front()->wait_for(1ms));
    }
  }

  /// What is complete by now.
  void collect() {
    for (Way& way : ways_) {
      while (!way.posted.empty() && way.posted.front().work.done()) {
        Posted& first = way.posted.front();
        first.work.wait();
        const auto what = first.work.received();
        require(what.has_value(), "a receive has received nothing");
        first.data.resize(std::min(what->count, first.data.size()));
        take(way, *what, first.data);
        way.posted.pop_front();
      }
    }
    std::erase_if(probes_, [](Work& probe) {
      if (!probe.done()) return false;
      require(probe.received().has_value(), "a probe has found nothing");
      return true;
    });
  }

  void take(Way& way, const Received& what, const Data& data) {
    const Planned& due = way.due.front();
    require(what == Received{way.source, way.tag, DType::u8, due.bytes}, "another message came");
    require(data == due.content(way.source), "a message's content differs");
    way.due.pop_front();
  }

  Communicator& comm_;
  std::mt19937 random_;
  std::vector<std::pair<int, std::deque<Planned>>> to_send_;
  std::deque<Sent> sent_;
  std::deque<Way> ways_;
  std::vector<Work> probes_;
};

}  // namespace

TEST_CASE("messages in all ways at once: each comes to the receive for which it is due") {
  const unsigned stories = std::getenv("DLAUNCH_TEST_FULL") != nullptr ? 80 : 4;
  for (const int size : {2, 3}) {
    for (unsigned seed = 1; seed <= stories; ++seed) {
      CAPTURE(size);
      CAPTURE(seed);
      check_all(run_ranks(size, [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(60s);
        Rank(comm, seed).run();
      }));
    }
  }
}
