// Whichever allocation fails, SQLite's own or ours, while the state is written to its file: the
// changes are made as a whole or not at all, and what is tried again succeeds.
#include "rendezvous/state/sqlite_place.hpp"
#include "rendezvous/state/state_file.hpp"
#include "tests/support/killed_state.hpp"
#include "tests/support/short_memory.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sqlite3.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace dlaunch::test;
using dlaunch::testing::at;
using dlaunch::testing::bytes_of;
using dlaunch::testing::shown;
using dlaunch::testing::TemporaryFolder;

namespace {

sqlite3_mem_methods enough;

void* allocate(int bytes) {
  return allocation_fails(static_cast<std::size_t>(bytes)) ? nullptr : enough.xMalloc(bytes);
}
void* reallocate(void* place, int bytes) {
  return allocation_fails(static_cast<std::size_t>(bytes)) ? nullptr
                                                           : enough.xRealloc(place, bytes);
}

/// SQLite's allocations fail as those of operator new do, while no file is open elsewhere.
class ShortOfMemory {
 public:
  ShortOfMemory() {
    sqlite3_shutdown();
    REQUIRE(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &enough) == SQLITE_OK);
    sqlite3_mem_methods poor = enough;
    poor.xMalloc = allocate;
    poor.xRealloc = reallocate;
    REQUIRE(sqlite3_config(SQLITE_CONFIG_MALLOC, &poor) == SQLITE_OK);
  }
  ~ShortOfMemory() {
    sqlite3_shutdown();
    sqlite3_config(SQLITE_CONFIG_MALLOC, &enough);
  }
  ShortOfMemory(const ShortOfMemory&) = delete;
  ShortOfMemory& operator=(const ShortOfMemory&) = delete;
};

/// One of each kind of change; those of different turns show.
std::vector<Change> changes_of(long turn) {
  const auto number = static_cast<std::uint64_t>(turn);
  const std::string job = "job-" + std::to_string(turn), word = std::to_string(turn);
  return {change::JobOpened{job, number},
          change::Drained{job, "because of " + word},
          change::SpaceOpened{turn, job, number, number},
          change::EpochClosed{job, number},
          change::Stored{turn, "long", Bytes(60'000, std::byte{'l'}), 0, {}},
          change::Stored{turn, "k", bytes_of(word), 0, {}},
          change::Erased{turn, "long"},
          change::Pushed{turn, "q", bytes_of("1")},
          change::Pushed{turn, "q", bytes_of("2")},
          change::Popped{turn, "q"},
          change::Completed{turn, true, "g", 2, std::make_shared<const Bytes>(bytes_of(word)), ""},
          change::Answered{turn, 9, 0, 4, {}, bytes_of(word)},
          change::Answered{turn, 10, 0, 4, {}, bytes_of(word)},
          change::Forgot{turn, 10},
          change::SpaceDropped{turn - 2},
          change::JobFinished{job, 3},
          change::JobForgotten{"job-" + std::to_string(turn - 2)}};
}

/// A place, and a file that has the same changes made to it, with memory.
struct Trial {
  const TemporaryFolder folder;
  const std::string path = at(folder, "state.db");
  StateFile right = copied();
  std::optional<SqlitePlace> place;
  long refused = 0, lost = 0;

  Trial() { open(); }
  StateFile copied() const {
    StateFile::open(path);
    testing::copy(path, at(folder, "right.db"));
    return StateFile::open(at(folder, "right.db"));
  }
  void open() {
    place.reset();
    place.emplace(StateFile::open(path));
  }

  /// Whether an allocation has failed.
  bool write(const std::vector<Change>& changes, const Shortage& shortage) {
    const std::string before = shown(right.load());
    bool made = false, known = true;
    run_short(shortage);
    try {
      made = place->write(changes) == StatePlace::Wrote::all;
    } catch (const StateLost&) {
      known = false;
    } catch (const std::bad_alloc&) {
      known = false;
    }
    const bool failed = have_enough();
    REQUIRE(right.write(changes) == StateFile::Wrote::all);
    const std::string after = shown(right.load());
    if (!known) {  // Whether they are made is known once the next daemon has opened the file.
      ++lost;
      open();
      made = shown(place->load()) == after;
    }
    if (!made) {
      ++refused;
      CHECK(shown(place->load()) == before);
      CHECK(place->obstacle().why.empty() != known);
      REQUIRE(place->write(changes) == StatePlace::Wrote::all);
    }
    CHECK(place->obstacle().why.empty());
    CHECK(shown(place->load()) == after);
    return failed;
  }
};

}  // namespace

TEST_CASE("whichever allocation fails while the state is written, changes are made whole or not") {
  const ShortOfMemory short_of_memory;
  Trial trial;
  long turn = 3;
  for (const long failures : {1L, 4L, 1000L}) {
    bool failed = true;
    for (long nth = 1; failed; ++nth) {  // Until there are no so many allocations.
      INFO(failures << " allocations failed from " << nth << " on");
      failed = trial.write(changes_of(turn++), {nth, failures});
    }
  }
  MESSAGE(trial.refused << " writes were refused, " << trial.lost << " ended the daemon");
  CHECK(trial.refused > 0);
  CHECK(trial.refused > trial.lost);
}
