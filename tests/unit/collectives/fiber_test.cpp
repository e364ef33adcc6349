// A stack of its own, from whichever thread it is driven.
#include "collectives/communicator/fiber.hpp"

#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using dlaunch::Fiber;

namespace {

/// What runs on the stack: notes where it is, and gives the thread back after each.
struct Story {
  static void run(void* story) noexcept { static_cast<Story*>(story)->tell(); }

  void tell() {
    const double third = 1.0 / static_cast<double>(chapters);
    for (int i = 0; i < chapters; ++i) {
      try {
        if (i % 2 == 1) throw std::runtime_error("odd");
        heard.emplace_back("even");
      } catch (const std::runtime_error& error) {
        heard.emplace_back(error.what());
      }
      sum += third;
      fiber->suspend();
    }
  }

  int chapters = 3;
  double sum = 0;
  std::vector<std::string> heard;
  std::optional<Fiber> fiber;
};

}  // namespace

TEST_CASE("a fiber goes on where it was suspended, and begins again when it has returned") {
  Story story;
  story.fiber.emplace(&Story::run, &story);
  for (int time = 0; time < 3; ++time) {
    story.heard.clear();
    story.sum = 0;
    for (int chapter = 0; chapter < 3; ++chapter) {
      CHECK(!story.fiber->resume());
      CHECK(story.fiber->is_suspended());
    }
    CHECK(story.fiber->resume());
    CHECK(!story.fiber->is_suspended());
    CHECK(story.heard == std::vector<std::string>{"even", "odd", "even"});
    CHECK(story.sum == doctest::Approx(1));
  }
}

TEST_CASE("threads take turns on a fiber, also while they handle exceptions of their own") {
  Story story;
  story.chapters = 40;
  story.fiber.emplace(&Story::run, &story);
  bool is_over = false;
  while (!is_over) {
    std::jthread([&] {
      try {
        throw std::logic_error("its own");
      } catch (const std::logic_error& error) {
        is_over = story.fiber->resume();
        CHECK(std::string(error.what()) == "its own");
      }
    }).join();
    if (!is_over) is_over = story.fiber->resume();
  }
  CHECK(story.heard.size() == 40);
  CHECK(story.sum == doctest::Approx(1));
}

TEST_CASE("fibers are driven beside each other, and from each other") {
  Story inner;
  inner.fiber.emplace(&Story::run, &inner);
  struct Outer {
    Story* inner;
    int turns = 0;
    std::optional<Fiber> fiber;
  } outer{&inner, 0, std::nullopt};
  outer.fiber.emplace(
      [](void* argument) noexcept {
        auto& self = *static_cast<Outer*>(argument);
        do {
          ++self.turns;
          self.fiber->suspend();
        } while (!self.inner->fiber->resume());
      },
      &outer);
  while (!outer.fiber->resume()) continue;
  CHECK(outer.turns == 4);
  CHECK(inner.heard.size() == 3);
}

TEST_CASE("a fiber that was never driven, or is suspended, goes without a word") {
  Story never;
  never.fiber.emplace(&Story::run, &never);
  never.fiber.reset();
  Story suspended;
  suspended.heard.reserve(1);
  suspended.fiber.emplace(&Story::run, &suspended);
  CHECK(!suspended.fiber->resume());
  suspended.fiber.reset();
  CHECK(suspended.heard.size() == 1);
}
