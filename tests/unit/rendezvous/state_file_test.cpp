// The state file: what was written is there, whatever becomes of the file; or it is refused.
#include "rendezvous/state/state_file.hpp"

#include "rendezvous/state/sqlite.hpp"
#include "tests/support/killed_state.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace dlaunch::testing;

TEST_CASE("what was written is there after a kill, and after a good end") {
  const Killed killed;
  const int all = static_cast<int>(batches().size());
  const std::string file = bytes_in(killed.path), log = bytes_in(killed.log);
  CHECK(killed.batches_in(killed.path) == all);
  CHECK(bytes_in(killed.path) == file);  // Reading has changed neither of them.
  CHECK(bytes_in(killed.log) == log);
  CHECK(shown(StateFile::open(killed.path).load()) == killed.states.back());
  CHECK_FALSE(std::filesystem::exists(killed.log));
  CHECK(killed.batches_in(killed.path) == all);
  CHECK_FALSE(std::filesystem::exists(killed.log));
  CHECK(killed.batches_in(at(killed.folder, "live.db")) == all);
  const std::string& last = killed.states.back();
  for (const char* line : {"job  8 9 -\n", "job a 7 3 -\n", "space a 7 3 1\n", "key k=w 0 0\n",
                           "entry q 2\nentry q 3\n", "round g 2 block\n", "round b 0 -\n",
                           "answer 9 4 \nanswer 9 5 x\n"}) {
    CHECK_MESSAGE(last.find(line) != std::string::npos, line << " is not in\n" << last);
  }
  CHECK(last.find("leased") == std::string::npos);
  CHECK(last.find("entry q 1") == std::string::npos);
}

TEST_CASE("of a session as many answers are kept as it may have unanswered") {
  const TemporaryFolder folder;
  StateFile file = StateFile::open(at(folder, "state.db"));
  std::vector<Change> changes = {change::SpaceOpened{1, "a", 7, 3}};
  for (std::uint64_t i = 0; i < 300; ++i) {
    changes.emplace_back(change::Answered{1, 9, i, 1000 + i, {}, {}});
    changes.emplace_back(change::Answered{1, 10, i, i, {}, {}});
  }
  changes.emplace_back(change::Forgot{1, 10});
  file.write(changes);
  const StateContents contents = file.load();
  const auto& space = contents.spaces.at({"a", 7, 3});
  REQUIRE(space.contents.answers.size() == wire::unanswered_changes_max);
  CHECK(space.contents.answers.front().request == 1300 - wire::unanswered_changes_max);
  CHECK(space.contents.answers.back().request == 1299);
  CHECK(space.answers.at(9) == 300);
  file.write(std::vector<Change>{change::SpaceDropped{1}});
  CHECK(file.load().spaces.empty());
}

TEST_CASE("a file that is moved or deleted while it is in use is missed before it is relied on") {
  for (const char* name : {"state.db", "state.db-wal"}) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const std::string path = at(folder, "state.db"), moved = at(folder, "moved");
    const bool whole = path == at(folder, name);
    std::optional<StateFile> file = StateFile::open(path);
    REQUIRE(file->write(batches()[0]) == StateFile::Wrote::all);
    std::filesystem::rename(at(folder, name), moved);
    if (whole) {
      CHECK_THROWS_WITH_AS(StateFile::open(path), doctest::Contains("is not there, but its log '"),
                           Error);
      CHECK_FALSE(std::filesystem::exists(path));
    }
    CHECK_THROWS_WITH_AS(file->write(batches()[1]),
                         doctest::Contains("was moved, removed or replaced while it was in use"),
                         StateLost);
    const std::string all = shown(file->load());
    std::optional<StateFile> other;
    if (whole) other = StateFile::open(path);
    file.reset();
    if (other) CHECK(other->write(batches()[0]) == StateFile::Wrote::all);
    CHECK(opened(whole ? moved : path).text == all);  // Nothing was left in the log.
  }
}

TEST_CASE("what is not ours, newer, in use or not to be had is refused, with its name") {
  const TemporaryFolder folder;
  const std::string path = at(folder, "state.db");
  const auto why = [&](const std::string& file, Errc errc = Errc::refused) {
    try {
      StateFile::open(file);
    } catch (const Error& error) {
      CHECK(error.errc() == errc);
      CHECK(std::string(error.what()).find("'" + file + "'") != std::string::npos);
      return std::string(error.what());
    }
    return std::string("opened");
  };
  const auto tells = [](const std::string& text, const std::string& words) {
    CHECK_MESSAGE(text.find(words) != std::string::npos, text);
  };
  {
    const StateFile first = StateFile::open(path);
    tells(why(path, Errc::unreachable), "is in use by another process");
  }
  CHECK(why(path) == "opened");
  CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::others_read) ==
        std::filesystem::perms::none);
  std::ofstream(at(folder, "text")) << "some text that is longer than a header of SQLite's, "
                                       "which has one hundred bytes, and is no database";
  tells(why(at(folder, "text")), "is damaged (file is not a database)");
  tells(why(at(folder, "none/state.db")), "cannot be opened: No such file or directory");
  tells(why(folder.path().string()), "cannot be opened: Is a directory");
  tells(opened(at(folder, "none.db")).text, "database file: No such file or directory");
  tells(opened(folder.path().string()).text, "database file: Is a directory");
  // Big-endian, at 60: user_version; at 68: application_id.
  flip(path, 63, 0);
  tells(why(path), "has version 3, and this dlaunchd knows 2");
  flip(path, 63, 0);
  flip(path, 71, 0);
  tells(why(path), "is not dlaunchd's");
}

TEST_CASE("a file of the first version is read as it is, and becomes one of this") {
  const Killed killed;
  const std::string before = opened(killed.path).text;
  {
    sqlite::Connection file(killed.path, sqlite::Connection::Mode::existing);
    file.execute("DROP TABLE drains");
    file.execute("PRAGMA user_version=1");
  }
  CHECK(opened(killed.path).text == before);
  const std::vector<Change> drained = {change::Drained{"a", "being drained"},
                                       change::Drained{"", "drained, too"}};
  {
    StateFile file = StateFile::open(killed.path);
    CHECK(shown(file.load()) == before);
    CHECK(file.write(drained) == StateFile::Wrote::all);
  }
  const std::string after = opened(killed.path).text;
  CHECK(after.find("job  8 9 - drained, too\njob a 7 3 - being drained\n") != std::string::npos);
  // Nothing of a drain is left when it is over, whatever ends it.
  StateFile file = StateFile::open(killed.path);
  CHECK(file.write(std::vector<Change>{change::Drained{"", std::nullopt}, change::JobOpened{"a", 7},
                                       change::EpochClosed{"a", 3}}) == StateFile::Wrote::all);
  CHECK(shown(file.load()) == before);
}

TEST_CASE("a copy holds the same, and replaces nothing") {
  const Killed killed;
  const std::string copied = at(killed.folder, "it's a copy.db"), part = copied + ".part";
  const auto copy_all = [&] {
    StateFile file = StateFile::open_existing(killed.path);
    const auto copying = file.copy_to(copied, part);
    while (!copying->step()) continue;
  };
  std::ofstream(part) << "somebody's";
  CHECK_THROWS_WITH_AS(copy_all(), doctest::Contains("File exists"), Error);
  CHECK(bytes_in(part) == "somebody's");
  CHECK_FALSE(std::filesystem::exists(copied));
  std::filesystem::remove(part);
  copy_all();
  const std::string before = bytes_in(copied);
  CHECK(killed.batches_in(copied) == static_cast<int>(batches().size()));
  CHECK(bytes_in(copied) == before);  // Reading it has not changed it.
  CHECK_THROWS_WITH_AS(copy_all(), doctest::Contains("is there already; move it away first"),
                       Error);
  CHECK(bytes_in(copied) == before);
  CHECK_FALSE(std::filesystem::exists(part));
}

TEST_CASE("what is written while a copy is made is in it, before and behind where the copy is") {
  const TemporaryFolder folder;
  StateFile file = StateFile::open(at(folder, "state.db"));
  std::vector<Change> changes = {change::JobOpened{"a", 7}, change::SpaceOpened{1, "a", 7, 3}};
  for (int i = 0; i < 64; ++i) {
    changes.emplace_back(
        change::Stored{1, "k" + std::to_string(i), Bytes(200'000, std::byte{'v'}), 0, {}});
  }
  REQUIRE(file.write(changes) == StateFile::Wrote::all);
  const std::string path = at(folder, "copy.db");
  const auto copying = file.copy_to(path, path + ".part");
  int steps = 0;
  for (; !copying->step(); ++steps) {
    CHECK_FALSE(std::filesystem::exists(path));
    const std::string key = "k" + std::to_string(steps % 64);
    const Bytes value(static_cast<std::size_t>(1000 * steps), std::byte{'w'});
    REQUIRE(file.write(
                std::vector<Change>{change::Stored{1, key, value, 0, {}},
                                    change::Stored{1, "new" + std::to_string(steps), value, 0, {}},
                                    change::Erased{1, "k" + std::to_string(63 - steps % 64)}}) ==
            StateFile::Wrote::all);
  }
  CHECK(steps > 5);
  CHECK(opened(path).text == shown(file.load()));
}

TEST_CASE("a copy that is given up leaves nothing, and one that came meanwhile stays") {
  const Killed killed;
  StateFile file = StateFile::open(killed.path);
  const std::string path = at(killed.folder, "copy.db"), part = path + ".part";
  { const auto copying = file.copy_to(path, part); }
  CHECK_FALSE(std::filesystem::exists(part));
  const auto finish = [](Backup& copying) {
    while (!copying.step()) continue;
  };
  const auto first = file.copy_to(path, part + "-1"), second = file.copy_to(path, part + "-2");
  finish(*second);
  const std::string copied = bytes_in(path);
  CHECK_THROWS_WITH_AS(finish(*first), doctest::Contains("is there already"), Error);
  CHECK(bytes_in(path) == copied);
  CHECK(killed.batches_in(path) == static_cast<int>(batches().size()));
}
