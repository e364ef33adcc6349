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
#include <optional>
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

std::string bytes_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A file as a kill leaves it: all batches in its log, and what it held after each of them.
struct Killed {
  Killed() {
    StateFile file = StateFile::open(at(folder, "live.db"));
    states.push_back(shown(file.load()));
    for (const auto& batch : batches()) {
      REQUIRE(file.write(batch) == StateFile::Wrote::all);
      states.push_back(shown(file.load()));
      ends.push_back(std::filesystem::file_size(at(folder, "live.db-wal")));
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
  std::vector<std::uintmax_t> ends;  ///< Of the log, after each batch.
};

}  // namespace

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

TEST_CASE("a bit of the log that has turned over is found, unless it looks like a loss of power") {
  const Killed killed;
  const std::size_t all = batches().size();
  const auto size = std::filesystem::file_size(killed.log);
  std::minstd_rand random(1);
  const std::uintmax_t step = is_full() ? 7 : size / 150;
  const std::string path = at(killed.folder, "flipped.db");
  for (std::uintmax_t at = 0; at < size; at += 1 + random() % (2 * step)) {
    copy(killed.path, path);
    copy(killed.log, path + "-wal");
    flip(path + "-wal", at, static_cast<int>(random() % 8));
    const int now = killed.batches_in(path), before = static_cast<int>(all) - 2;
    CAPTURE(at);
    if (at < killed.ends[all - 3]) {
      CHECK(now == -1);
    } else if (at < killed.ends[all - 2]) {  // The frame of a commit may be the bad one.
      CHECK((now == -1 || now == before));
    } else {  // A commit may be put where none was.
      CHECK((now == before + 1 || (now == -1 && (at - 32) % (24 + 4096) < 24)));
    }
  }
}

TEST_CASE("a last transaction of which a loss of power left any sectors is dropped") {
  const Killed killed;
  const std::string log = bytes_in(killed.log), path = at(killed.folder, "torn.db");
  const int before = static_cast<int>(batches().size()) - 1;
  const std::size_t begin = (killed.ends[killed.ends.size() - 2] + 511) / 512 * 512;
  std::minstd_rand random(1);
  for (int i = 0; i < 40; ++i) {
    std::string torn = log;
    for (std::size_t at = begin; at < log.size(); at += 512) {
      const char old = random() % 2 == 0 ? '\0' : 'x';
      if (random() % 3 == 0)
        torn.replace(at, 512, std::min<std::size_t>(512, log.size() - at), old);
    }
    copy(killed.path, path);
    std::ofstream(path + "-wal", std::ios::binary) << torn;
    CHECK(killed.batches_in(path) >= before);
  }
}

TEST_CASE("a log that is damaged in the middle is refused by the daemon, too, and stays") {
  const Killed killed;
  flip(killed.log, 32 + 24 + 4096 + 24 + 100, 0);
  const std::string log = bytes_in(killed.log);
  CHECK_THROWS_WITH_AS(
      StateFile::open(killed.path),
      doctest::Contains(("the state file '" + killed.path + "' is damaged (its log '" + killed.log +
                         "' is damaged at frame 2, byte 4152: ")
                            .c_str()),
      Error);
  CHECK(bytes_in(killed.log) == log);
  // As the page of dlaunchd says: what was before the frame.
  std::filesystem::resize_file(killed.log, 4152);
  CHECK(killed.batches_in(killed.path) >= 0);
  std::ofstream(killed.log) << std::string(5000, 'x');
  CHECK_THROWS_WITH_AS(StateFile::open(killed.path), doctest::Contains("-wal' has no good header"),
                       Error);
  CHECK(killed.batches_in(killed.path) == -1);
  std::ofstream(killed.log) << std::string(5000, '\0');  // Made, and not written yet.
  CHECK(killed.batches_in(killed.path) == 0);
}

TEST_CASE("what is left of an older log behind the last frame is no damage") {
  const TemporaryFolder folder;
  const std::string path = at(folder, "killed.db"), log = path + "-wal";
  StateFile file = StateFile::open(at(folder, "live.db"));
  for (int i = 0; i < 6; ++i) {
    const change::Space space = 2 + i;
    REQUIRE(file.write(std::vector<Change>{
                change::SpaceOpened{space, "z", 1, static_cast<std::uint64_t>(space)},
                change::Stored{space, "big", Bytes(1'000'000, std::byte{'b'}), 0, {}}}) ==
            StateFile::Wrote::all);
  }
  const auto size = std::filesystem::file_size(at(folder, "live.db-wal"));
  file.tidy();
  for (const auto& batch : batches()) REQUIRE(file.write(batch) == StateFile::Wrote::all);
  CHECK(std::filesystem::file_size(at(folder, "live.db-wal")) == size);
  copy(at(folder, "live.db"), path);
  copy(at(folder, "live.db-wal"), log);
  CHECK(opened(path).text == shown(file.load()));
  flip(log, 32 + 24 + 100, 0);
  const Opened now = opened(path);
  CHECK(now.text.find("is damaged at frame 1, byte 32: ") != std::string::npos);
  CHECK(now.text.find(" frames behind it cannot be used") != std::string::npos);
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

TEST_CASE("a bit of the file that has turned over is found, or makes no difference") {
  const Killed killed;
  { const StateFile moves_the_log_to_it = StateFile::open(killed.path); }
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
