#include "rendezvous/daemon/log.hpp"

#include "runtime/base/os/socket.hpp"
#include "tests/support/temporary_folder.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;

namespace {

/// A pipe from which nobody waits to read.
struct Reader {
  Reader() {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    read_end = unique_fd(ends[0]);
    write_end = unique_fd(ends[1]);
  }
  std::string read() const {
    std::array<char, 65536> some{};
    const auto size = ::read(read_end.get(), some.data(), some.size());
    return {some.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
  }
  unique_fd read_end, write_end;
};

/// The journal's socket.
struct Journal {
  explicit Journal(const std::string& path) : fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const Address at = unix_address(path);
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.size) == 0);
  }
  std::string hear() const {
    std::array<char, 65536> some{};
    const auto size = ::recv(fd.get(), some.data(), some.size(), MSG_DONTWAIT);
    return {some.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
  }
  unique_fd fd;
};

const LogLine epoch_line{.level = LogLine::Level::warning,
                         .job = "red\n\"",
                         .sentence = "epoch 3 is stopped: \x1b[2J",
                         .told = true,
                         .event = LogLine::Event::stopping,
                         .epoch = 3,
                         .attempt = 1};

}  // namespace

TEST_CASE("a line for people: one line, whatever a name has in it") {
  const Reader reader;
  Log log(reader.write_end.get());
  log.write(epoch_line);
  const std::string text = reader.read();
  CHECK(text.ends_with("Z dlaunchd: warning: job 'red\\x0a\"': epoch 3 is stopped: \\x1b[2J\n"));
  log.write({.level = LogLine::Level::debug, .job = "", .sentence = "not this"});
  CHECK(reader.read().empty());
}

TEST_CASE("a line as JSON, however long and strange") {
  const Reader reader;
  Log log(reader.write_end.get());
  log.set_form(Log::Form::json);
  log.write(epoch_line);
  const auto json = nlohmann::json::parse(reader.read());
  CHECK(json["level"] == "warning");
  CHECK(json["job"] == "red\n\"");
  CHECK(json["event"] == "stopping");
  CHECK(json["epoch"] == 3);
  CHECK(json["attempt"] == 1);
  CHECK(json["message"] == "epoch 3 is stopped: \x1b[2J");
  CHECK(json["time"].get<std::string>().ends_with("Z"));
  LogLine longest = epoch_line;
  longest.job = std::string(255, '\x01');
  longest.sentence = std::string(100'000, '\x02');
  log.write(longest);
  const std::string text = reader.read();
  CHECK(text.size() <= 4096);
  CHECK(nlohmann::json::parse(text)["job"] == longest.job);
  log.info("no job");
  CHECK_FALSE(nlohmann::json::parse(reader.read()).contains("job"));
}

TEST_CASE("a name without end is shortened, and the line still says the rest") {
  const dlaunch::testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "journal").string();
  const Journal journal(path);
  const Reader reader;
  for (const char letter : {'x', '\x01', '\xff'}) {
    LogLine line = epoch_line;
    line.job = std::string(4000, letter);
    Log json_log(reader.write_end.get());
    json_log.set_form(Log::Form::json);
    json_log.write(line);
    const std::string text = reader.read();
    CHECK(text.size() <= 4096);
    CHECK(nlohmann::json::parse(text)["message"] == line.sentence);
    Log text_log(reader.write_end.get());
    text_log.write(line);
    CHECK(reader.read().ends_with("': epoch 3 is stopped: \\x1b[2J\n"));
    Log journal_log(reader.write_end.get(), path);
    journal_log.write(line);
    CHECK(journal.hear().size() <= 4096);
  }
}

TEST_CASE("a line in the journal has its fields; without a journal it has its priority") {
  const dlaunch::testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "journal").string();
  const Reader reader;
  Log log(reader.write_end.get(), path);
  log.write(epoch_line);
  CHECK(reader.read() == "<4>job 'red\\x0a\"': epoch 3 is stopped: \\x1b[2J\n");
  const auto journal = std::make_unique<Journal>(path);
  log.write(epoch_line);
  CHECK(reader.read().empty());
  CHECK(journal->hear() ==
        "SYSLOG_IDENTIFIER=dlaunchd\nPRIORITY=4\n"
        "MESSAGE=job 'red\\x0a\"': epoch 3 is stopped: \\x1b[2J\n"
        "DLAUNCH_JOB=red\\x0a\"\nDLAUNCH_EVENT=stopping\nDLAUNCH_EPOCH=3\nDLAUNCH_ATTEMPT=1\n");
  log.info("by itself");
  CHECK(journal->hear() == "SYSLOG_IDENTIFIER=dlaunchd\nPRIORITY=6\nMESSAGE=by itself\n");
}

TEST_CASE("a journal that was started again is found again") {
  const dlaunch::testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "journal").string();
  const Reader reader;
  auto journal = std::make_unique<Journal>(path);
  Log log(reader.write_end.get(), path);
  log.info("one");
  CHECK(journal->hear().ends_with("MESSAGE=one\n"));
  journal.reset();
  REQUIRE(::unlink(path.c_str()) == 0);
  journal = std::make_unique<Journal>(path);
  log.info("two");
  CHECK(journal->hear().ends_with("MESSAGE=two\n"));
}

TEST_CASE("lines that nobody reads are dropped and counted") {
  const Reader reader;
  Log log(reader.write_end.get());
  for (int i = 0; i < 10'000; ++i) log.info("a line that is dropped once the pipe is full");
  CHECK(log.lost() > 0);
  const auto lost = log.lost();
  while (!reader.read().empty()) {
  }
  log.info("again");
  CHECK(reader.read().find(std::to_string(lost) + " log lines were lost: nobody read them") !=
        std::string::npos);
  CHECK(log.lost() == lost);
}
