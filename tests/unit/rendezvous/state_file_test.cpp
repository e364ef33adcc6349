// The state file: what was written is there, whatever becomes of the file; or it is refused.
#include "rendezvous/state/state_file.hpp"

#include "rendezvous/state/sqlite.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/state_text.hpp"
#include "tests/support/temporary_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;

namespace {

using testing::is_full;
using testing::shown;
using testing::TemporaryFolder;

std::string at(const TemporaryFolder& folder, const char* name) {
  return (folder.path() / name).string();
}

Bytes bytes_of(std::string_view text) {
  const BytesView raw = as_bytes(text);
  return {raw.begin(), raw.end()};
}

/// What comes of opening it: what it holds, or the sentence with which it is refused.
struct Opened {
  bool refused = false;
  std::string text;
};
Opened opened(const std::string& path) {
  try {
    StateFile file = StateFile::open_existing(path);
    return {false, shown(file.load())};
  } catch (const Error& error) {
    CHECK_MESSAGE(error.errc() == Errc::refused, error.what());
    return {true, error.what()};
  }
}

std::vector<std::vector<Change>> batches() {
  return {
      {change::JobOpened{"a", 7}, change::SpaceOpened{1, "a", 7, 3}, change::EpochClosed{"a", 3}},
      {change::Stored{1, "k", bytes_of("v"), 0, {}},
       change::Answered{1, 9, 0, 4, {}, bytes_of("")}},
      {change::Stored{1, "k", bytes_of("w"), 0, {}},
       change::Stored{1, "leased", bytes_of(""), 9, std::chrono::milliseconds(500)}},
      {change::Pushed{1, "q", bytes_of("1")}, change::Pushed{1, "q", bytes_of("2")},
       change::Pushed{1, "q", bytes_of("3")}, change::Answered{1, 9, 1, 5, {}, bytes_of("x")}},
      {change::Popped{1, "q"}, change::Erased{1, "leased"},
       change::Completed{1, true, "g", 2, std::make_shared<const Bytes>(bytes_of("block")), ""},
       change::Completed{1, false, "b", 0, nullptr, ""}},
      {change::JobOpened{"b", 8}, change::EpochClosed{"b", 9}, change::JobFinished{"b", 4}},
      {change::JobForgotten{"b"}, change::Stored{1, "long", Bytes(5000, std::byte{'l'}), 0, {}}},
  };
}

void copy(const std::string& from, const std::string& to) {
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
}

void flip(const std::string& path, std::uintmax_t at, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int old = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(old ^ (1 << bit)));
}

/// A file as a kill leaves it: all batches in its log, and what it held after each of them.
struct Killed {
  Killed() {
    StateFile file = StateFile::open(at(folder, "live.db"));
    states.push_back(shown(file.load()));
    for (const auto& batch : batches()) {
      REQUIRE(file.write(batch) == StateFile::Wrote::all);
      states.push_back(shown(file.load()));
    }
    copy(at(folder, "live.db"), path);
    copy(at(folder, "live.db-wal"), log);
  }
  /// How many batches it holds; -1 where it was refused.
  int batches_in(const std::string& file) const {
    const Opened now = opened(file);
    if (now.refused) return -1;
    const auto found = std::ranges::find(states, now.text);
    REQUIRE_MESSAGE(found != states.end(), now.text);
    return static_cast<int>(found - states.begin());
  }
  TemporaryFolder folder;
  std::string path = at(folder, "killed.db"), log = path + "-wal";
  std::vector<std::string> states;
};

}  // namespace

TEST_CASE("what was written is there after a kill, and after a good end") {
  const Killed killed;
  const int all = static_cast<int>(batches().size());
  CHECK(killed.batches_in(killed.path) == all);
  CHECK_FALSE(std::filesystem::exists(killed.log));
  CHECK(killed.batches_in(killed.path) == all);
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

TEST_CASE("a log that is cut anywhere has a prefix of what was committed") {
  const Killed killed;
  const auto size = std::filesystem::file_size(killed.log);
  const std::uintmax_t step = is_full() ? 1 : size / 150;
  const std::string path = at(killed.folder, "cut.db");
  int before = 0;
  for (std::uintmax_t length = 0;; length = std::min(size, length + step)) {
    copy(killed.path, path);
    copy(killed.log, path + "-wal");
    std::filesystem::resize_file(path + "-wal", length);
    const int now = killed.batches_in(path);
    CHECK_MESSAGE(now >= before, length);
    before = now;
    if (length == size) break;
  }
  CHECK(before == static_cast<int>(batches().size()));
}

TEST_CASE("a bit of the log that has turned over leaves a prefix") {
  const Killed killed;
  const auto size = std::filesystem::file_size(killed.log);
  std::minstd_rand random(1);
  const std::uintmax_t step = is_full() ? 7 : size / 150;
  const std::string path = at(killed.folder, "flipped.db");
  for (std::uintmax_t at = 0; at < size; at += 1 + random() % (2 * step)) {
    copy(killed.path, path);
    copy(killed.log, path + "-wal");
    flip(path + "-wal", at, static_cast<int>(random() % 8));
    killed.batches_in(path);  // Fails where it is none.
  }
}

TEST_CASE("a bit of the file that has turned over is found, or makes no difference") {
  const Killed killed;
  const Opened good = opened(killed.path);
  REQUIRE_FALSE(good.refused);
  const auto size = std::filesystem::file_size(killed.path);
  std::minstd_rand random(1);
  const std::uintmax_t step = size / 500;
  const std::string path = at(killed.folder, "flipped.db");
  int refused = 0;
  const auto check = [&](std::uintmax_t at, int bit) {
    copy(killed.path, path);
    std::filesystem::remove(path + "-wal");
    flip(path, at, bit);
    const Opened now = opened(path);
    if (now.refused) {
      ++refused;
      CHECK_MESSAGE(now.text.find("the state file '" + path + "'") == 0, now.text);
    } else {
      CHECK_MESSAGE(now.text == good.text, at << " bit " << bit);
    }
  };
  for (std::uintmax_t at = 0; at < size; at += is_full() ? 1 : 1 + random() % (2 * step)) {
    const int one = static_cast<int>(random() % 8);
    for (int bit = is_full() ? 0 : one; bit <= (is_full() ? 7 : one); ++bit) check(at, bit);
  }
  CHECK(refused > 0);
}

TEST_CASE("what is not ours, newer, in use or not to be had is refused, with its name") {
  const TemporaryFolder folder;
  const std::string path = at(folder, "state.db");
  const auto why = [&](const std::string& file) {
    try {
      StateFile::open(file);
    } catch (const Error& error) {
      CHECK(error.errc() == Errc::refused);
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
    tells(why(path), "is in use by another process");
  }
  CHECK(why(path) == "opened");
  CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::others_read) ==
        std::filesystem::perms::none);
  std::ofstream(at(folder, "text")) << "some text that is longer than a header of SQLite's, "
                                       "which has one hundred bytes, and is no database";
  tells(why(at(folder, "text")), "is damaged (file is not a database)");
  tells(why(at(folder, "none/state.db")), "cannot be opened: No such file or directory");
  tells(why(folder.path().string()), "cannot be opened: Is a directory");
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
  std::ofstream(part) << "left behind by one that was killed";
  copy_all();
  const auto bytes = [&] {
    std::ifstream file(copied, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string before = bytes();
  CHECK(killed.batches_in(copied) == static_cast<int>(batches().size()));
  CHECK(bytes() == before);  // Reading it has not changed it.
  CHECK_THROWS_WITH_AS(copy_all(), doctest::Contains("is there already; move it away first"),
                       Error);
  CHECK(bytes() == before);
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
  const auto copying = file.copy_to(path, part);
  std::ofstream(path) << "another";
  CHECK_THROWS_WITH_AS(
      [&] {
        while (!copying->step()) continue;
      }(),
      doctest::Contains("is there already"), Error);
  CHECK(std::filesystem::file_size(path) == 7);
}
