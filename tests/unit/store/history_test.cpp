// Seeded random histories on the key-value core and on a model that is too plain to be wrong: a
// map, a list of queues, and one list of waits that is searched from the front.
#include "runtime/store/core/key_values.hpp"
#include "tests/support/store_effects.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::store;

namespace {

Clock::time_point at(int ms) { return Clock::time_point{} + std::chrono::milliseconds(ms); }
constexpr int never = -1;

class Model {
 public:
  using Out = std::vector<std::string>;

  void set(const std::string& who, const std::string& key, const std::string& value, Out& out) {
    say(out, who, "done");
    put(key, value, out);
  }
  void get(const std::string& who, const std::string& key, Out& out) {
    say(out, who, map_.contains(key) ? "found " + shown(map_[key]) : "absent");
  }
  void add(const std::string& who, const std::string& key, int delta, Out& out) {
    int sum = delta;
    if (map_.contains(key)) {
      const std::string& text = map_[key];
      const auto digits = text.find_first_not_of("-0123456789") == std::string::npos;
      if (!digits || text.empty()) {
        return say(out, who, "refused the value of '" + key + "' is not a whole number");
      }
      sum += std::stoi(text);
    }
    say(out, who, "number " + std::to_string(sum));
    put(key, std::to_string(sum), out);
  }
  void append(const std::string& who, const std::string& key, const std::string& tail, Out& out) {
    const std::string value = (map_.contains(key) ? map_[key] : "") + tail;
    say(out, who, "number " + std::to_string(value.size()));
    put(key, value, out);
  }
  void compare_set(const std::string& who, const std::string& key, const std::string& expected,
                   const std::string& desired, Out& out) {
    if (!map_.contains(key)) return say(out, who, "kept -");
    if (map_[key] != expected) return say(out, who, "kept " + shown(map_[key]));
    say(out, who, "stored " + shown(desired));
    put(key, desired, out);
  }
  void erase(const std::string& who, const std::string& key, Out& out) {
    say(out, who, map_.contains(key) ? "number 1" : "number 0");
    if (!map_.contains(key)) return;
    for (const Wait& wait : waits_) {
      if (wait.kind == 'c' && wait.keys[0] == key) {
        say(out, wait.who, "deleted " + key + " " + shown(map_[key]) + " -");
      }
    }
    map_.erase(key);
  }
  void push(const std::string& who, const std::string& queue, const std::string& value, Out& out) {
    say(out, who, "done");
    for (auto wait = waits_.begin(); wait != waits_.end(); ++wait) {
      if (wait->kind != 'p' || wait->keys[0] != queue) continue;
      say(out, wait->who, "popped 1 " + shown(value));
      waits_.erase(wait);
      return;
    }
    queues_[queue].push_back(value);
    bool woken = false;
    end_waits(out, [&](const Wait& wait) {
      if (wait.kind != 'w' || !std::ranges::count(wait.keys, queue) || !all_exist(wait))
        return false;
      if (wait.keys.size() > 1) return true;
      return !std::exchange(woken, true);
    });
  }
  void pop(const std::string& who, const std::string& queue, int deadline, bool waits, Out& out) {
    auto& values = queues_[queue];
    if (values.empty() && waits) return begin({'p', who, {queue}, deadline, ""});
    say(out, who,
        "popped " + std::to_string(values.size()) + " " +
            (values.empty() ? "-" : shown(values.front())));
    if (!values.empty()) values.pop_front();
  }
  void wait(const std::string& who, std::vector<std::string> keys, int deadline, Out& out) {
    Wait wait{'w', who, std::move(keys), deadline, "done"};
    if (all_exist(wait)) return say(out, who, "done");
    begin(std::move(wait));
  }
  void wait_get(const std::string& who, const std::string& key, int deadline, Out& out) {
    if (map_.contains(key)) return say(out, who, "found " + shown(map_[key]));
    begin({'g', who, {key}, deadline, ""});
  }
  void watch(const std::string& who, const std::string& key) {
    begin({'c', who, {key}, never, ""});
  }
  void barrier(const std::string& who, const std::string& name, int contributor, int count,
               int deadline, Out& out) {
    auto& arrived = barriers_[name];
    arrived.insert(contributor);
    if (static_cast<int>(arrived.size()) < count) {
      return begin({'b', who, {name}, deadline, std::to_string(count)});
    }
    arrived.clear();
    say(out, who, "done");
    end_waits(out, [&](Wait& w) {
      const bool ends = w.kind == 'b' && w.keys[0] == name;
      if (ends) w.answer = "done";
      return ends;
    });
  }
  void cancel(const std::string& who) {
    std::erase_if(waits_, [&](const Wait& wait) { return wait.who == who; });
  }
  void disconnect(const std::string& client) {
    std::erase_if(waits_, [&](const Wait& wait) { return wait.who.starts_with(client + "."); });
  }
  void tick(int now, Out& out) {
    std::vector<Wait> late;
    std::erase_if(waits_, [&](const Wait& wait) {
      const bool is_late = wait.deadline != never && wait.deadline <= now;
      if (is_late) late.push_back(wait);
      return is_late;
    });
    std::ranges::stable_sort(late, {}, &Wait::deadline);
    for (const Wait& wait : late) say(out, wait.who, "timed-out" + missing(wait));
  }
  std::string keys() const {
    std::string text;
    for (const auto& [key, value] : map_) text += key + "=" + shown(value) + " ";
    return text;
  }

 private:
  struct Wait {
    char kind;  // w: keys, g: value, p: pop, c: changes, b: barrier
    std::string who;
    std::vector<std::string> keys;
    int deadline;
    std::string answer;
  };
  static std::string shown(const std::string& value) { return value.empty() ? "_" : value; }
  static void say(Out& out, const std::string& who, const std::string& what) {
    out.push_back(who + " " + what);
  }
  bool exists(const std::string& key) const {
    const auto queue = queues_.find(key);
    return map_.contains(key) || (queue != queues_.end() && !queue->second.empty());
  }
  bool all_exist(const Wait& wait) const {
    return std::ranges::all_of(wait.keys, [&](const auto& key) { return exists(key); });
  }
  std::string missing(const Wait& wait) const {
    std::string text;
    if (wait.kind == 'b') {
      for (int i = 0; i < std::stoi(wait.answer); ++i) {
        if (!barriers_.at(wait.keys[0]).contains(i)) text += " " + std::to_string(i);
      }
      return text;
    }
    for (const auto& key : wait.keys) {
      if (wait.kind != 'w' || !exists(key)) text += " " + key;
    }
    return text;
  }
  void begin(Wait wait) { waits_.push_back(std::move(wait)); }
  template <class Ends>
  void end_waits(Out& out, Ends ends) {
    for (auto wait = waits_.begin(); wait != waits_.end();) {
      if (!ends(*wait)) {
        ++wait;
        continue;
      }
      say(out, wait->who, wait->answer);
      wait = waits_.erase(wait);
    }
  }
  void put(const std::string& key, const std::string& value, Out& out) {
    const bool created = !map_.contains(key);
    for (const Wait& wait : waits_) {
      if (wait.kind != 'c' || wait.keys[0] != key) continue;
      say(out, wait.who,
          (created ? "created " + key + " -" : "updated " + key + " " + shown(map_[key])) + " " +
              shown(value));
    }
    map_[key] = value;
    if (!created) return;
    end_waits(out, [&](Wait& wait) {
      if (wait.kind == 'g' && wait.keys[0] == key) {
        wait.answer = "found " + shown(value);
        return true;
      }
      return wait.kind == 'w' && std::ranges::count(wait.keys, key) > 0 && all_exist(wait);
    });
  }

  std::map<std::string, std::string> map_;
  std::map<std::string, std::deque<std::string>> queues_;
  std::map<std::string, std::set<int>> barriers_;
  std::vector<Wait> waits_;
};

/// One history: the same random calls on both, compared after each.
class History {
 public:
  explicit History(unsigned seed) : random_(seed) {}

  bool step() {
    const std::uint64_t client = 1 + below(4);
    const Caller by{client, ++request_};
    const std::string who = std::to_string(client) + "." + std::to_string(by.request);
    const std::string key(1, static_cast<char>('a' + below(5)));
    const std::string value = below(4) == 0 ? std::string() : std::to_string(below(100));
    const int deadline = below(2) == 0 ? never : now_ + static_cast<int>(below(50));
    const auto until = deadline == never ? Clock::time_point::max() : at(deadline);
    Effects effects;
    Model::Out expected;
    switch (below(17)) {
      case 0:
      case 1:
        core_.set(by, key, as_bytes(value), effects);
        model_.set(who, key, value, expected);
        break;
      case 2:
        core_.get(by, key, effects);
        model_.get(who, key, expected);
        break;
      case 3:
        core_.add(by, key, 3, effects);
        model_.add(who, key, 3, expected);
        break;
      case 4:
        core_.append(by, key, as_bytes(value), effects);
        model_.append(who, key, value, expected);
        break;
      case 5:
        core_.compare_set(by, key, as_bytes(value), as_bytes("new"), effects);
        model_.compare_set(who, key, value, "new", expected);
        break;
      case 6:
      case 7:
      case 8:
        core_.erase(by, key, effects);
        model_.erase(who, key, expected);
        break;
      case 9:
        core_.push(by, key, as_bytes(value), effects);
        model_.push(who, key, value, expected);
        break;
      case 10: {
        const bool waits = below(3) == 0;
        waits ? core_.pop(by, key, until, effects) : core_.try_pop(by, key, effects);
        model_.pop(who, key, deadline, waits, expected);
        break;
      }
      case 11: {
        std::vector<std::string> keys;
        for (auto n = 1 + below(3); n > 0; --n) {
          keys.emplace_back(1, static_cast<char>('a' + below(5)));
        }
        const std::vector<std::string_view> views(keys.begin(), keys.end());
        core_.wait(by, views, until, effects);
        // A key named twice is still one queue for who waits for it alone, by the number of names.
        model_.wait(who, keys, deadline, expected);
        break;
      }
      case 12:
        core_.wait_get(by, key, until, effects);
        model_.wait_get(who, key, deadline, expected);
        break;
      case 13:
        if (below(4) == 0) {
          core_.watch(by, key, effects);
          model_.watch(who, key);
        }
        break;
      case 14: {
        const int contributor = static_cast<int>(below(3));
        const int list[] = {contributor};
        core_.barrier(by, key, rounds_[key], 3, list, until, effects);
        model_.barrier(who, key, contributor, 3, deadline, expected);
        if (!effects.empty()) ++rounds_[key];
        break;
      }
      case 15: {
        const Caller other{client, 1 + below(request_)};
        core_.cancel(other);
        model_.cancel(std::to_string(client) + "." + std::to_string(other.request));
        if (below(10) == 0) {
          core_.disconnect(client);
          model_.disconnect(std::to_string(client));
        }
        break;
      }
      case 16:
        now_ += static_cast<int>(below(30));
        core_.tick(at(now_), effects);
        model_.tick(now_, expected);
        break;
    }
    std::vector<std::string> actual;
    for (const Effect& effect : effects) actual.push_back(test::shown(effect));
    CHECK(actual == expected);
    return actual == expected;
  }

  void compare_contents() {
    Effects effects;
    core_.list({}, {}, effects);
    std::string text;
    for (const std::string& key : std::get<KeyList>(effects.front().answer).keys) {
      Effects got;
      core_.get({}, key, got);
      text += key + "=" + test::shown(std::get<Found>(got.front().answer).value) + " ";
    }
    CHECK(text == model_.keys());
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  std::mt19937_64 random_;
  KeyValues core_;
  Model model_;
  std::uint64_t request_ = 0;
  int now_ = 0;
  std::map<std::string, std::uint64_t> rounds_;
};

}  // namespace

TEST_CASE("random histories end as the plain model says") {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    History history(seed);
    for (int step = 0; step < 500; ++step) {
      CAPTURE(step);
      if (!history.step()) return;
    }
    history.compare_contents();
  }
}
