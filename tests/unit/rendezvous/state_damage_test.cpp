// A state file, or its log, that was cut or changed: a prefix of what was written is read, or it is
// refused.
#include "rendezvous/state/sqlite.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/killed_state.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace dlaunch::testing;

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
  const std::string path = at(killed.folder, "flipped.db");
  constexpr std::uintmax_t log_header = 32, frame_header = 24, page = 4096;
  const auto check = [&](std::uintmax_t at, int bit) {
    copy(killed.path, path);
    copy(killed.log, path + "-wal");
    flip(path + "-wal", at, bit);
    const int now = killed.batches_in(path), before = static_cast<int>(all) - 2;
    const bool in_header =
        at < log_header || (at - log_header) % (frame_header + page) < frame_header;
    CAPTURE(at);
    CAPTURE(bit);
    if (at < killed.ends[all - 3]) {
      CHECK(now == -1);
    } else if (at < killed.ends[all - 2]) {  // The frame of a commit may be the bad one.
      CHECK((now == -1 || now == before));
    } else {  // A commit may be put where none was.
      CHECK((now == before + 1 || (now == -1 && in_header)));
    }
    return in_header;
  };
  const std::uintmax_t step = size / 150;
  for (std::uintmax_t at = 0; at < size; at += is_full() ? 1 : 1 + random() % (2 * step)) {
    const int one = static_cast<int>(random() % 8);
    const bool in_header = check(at, one);
    for (int bit = 0; is_full() && in_header && bit < 8; ++bit) check(at, bit);
  }
  // Every byte of its header, which is short.
  for (std::uintmax_t at = 0; at < log_header; ++at) check(at, static_cast<int>(random() % 8));
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

TEST_CASE("a file that is cut anywhere holds all that it did, or is refused") {
  const Killed killed;
  { const StateFile moves_the_log_to_it = StateFile::open(killed.path); }
  REQUIRE_FALSE(std::filesystem::exists(killed.log));
  const Opened good = opened(killed.path);
  REQUIRE_FALSE(good.refused);
  const auto size = std::filesystem::file_size(killed.path);
  const std::string path = at(killed.folder, "cut.db");
  constexpr std::uintmax_t empty_bytes_max = 1;  // As SQLite has it.
  std::uintmax_t refused = 0, count = 0;
  const auto check = [&](std::uintmax_t length) {
    copy(killed.path, path);
    std::filesystem::resize_file(path, length);
    const Opened now = opened(path);
    if (now.refused) ++refused;
    CHECK_MESSAGE(now.text == (now.refused ? now.text : good.text), length);
    CHECK_MESSAGE((!now.refused || now.text.find("the state file '" + path + "'") == 0), now.text);
    // What an open refuses stays as it is, for whoever mends it; nothing is begun in its place.
    if (now.refused && length > empty_bytes_max)
      CHECK_THROWS_AS(StateFile::open(path).load(), Error);
    CHECK(std::filesystem::file_size(path) == length);
    ++count;
  };
  const std::uintmax_t step = is_full() ? 1 : size / 150;
  for (std::uintmax_t length = 0; length < size; length += step) check(length);
  constexpr std::uintmax_t page = 4096;
  for (std::uintmax_t length = page; length < size; length += page) check(length);
  CHECK(refused * 2 > count);
  copy(killed.path, path);
  CHECK(opened(path).text == good.text);
}

TEST_CASE("a log whose file has become empty is refused, and stays") {
  const Killed killed;
  const std::string log = bytes_in(killed.log);
  for (const std::uintmax_t length : {1, 0}) {
    std::filesystem::resize_file(killed.path, length);
    CHECK_THROWS_WITH_AS(StateFile::open(killed.path),
                         doctest::Contains("is not there, but its log '"), Error);
    CHECK(bytes_in(killed.log) == log);
  }
}

TEST_CASE("a value of another type is damage, even where it is worth the same") {
  const Killed killed;
  { const StateFile moves_the_log_to_it = StateFile::open(killed.path); }
  REQUIRE_FALSE(opened(killed.path).refused);
  const std::string path = at(killed.folder, "other.db");
  for (const char* change :
       {"UPDATE answers SET number=x'' WHERE number=0", "UPDATE jobs SET epoch=CAST(epoch AS BLOB)",
        "UPDATE entries SET queue=CAST(queue AS TEXT)", "UPDATE keys SET key=CAST(key AS TEXT)",
        "UPDATE service SET epoch=CAST(epoch AS BLOB)", "UPDATE spaces SET job=CAST(job AS TEXT)",
        "UPDATE rounds SET name=CAST(name AS TEXT)"}) {
    INFO(change);
    copy(killed.path, path);
    std::filesystem::remove(path + "-wal");
    {
      sqlite::Connection file(path, sqlite::Connection::Mode::existing);
      file.execute(change);
    }
    const Opened now = opened(path);
    CHECK(now.refused);
    CHECK_MESSAGE(now.text.find("is damaged (") != std::string::npos, now.text);
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
