#include "runtime/world/by_hand/meeting_file.hpp"

#include "runtime/base/os/identity.hpp"
#include "runtime/base/os/random.hpp"

#include <dlaunch/error.hpp>

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;

namespace {

/// A path of its own that is gone at the end.
class Path {
 public:
  Path() : text_((std::filesystem::temp_directory_path() / ("meet-" + random_hex(32))).string()) {}
  ~Path() { std::filesystem::remove(text_); }
  const std::string& operator*() const { return text_; }

 private:
  std::string text_;
};

MeetingRecord own_meeting() {
  MeetingRecord meeting = meeting_of_this_process();
  meeting.host = "127.0.0.1";
  meeting.port = 4711;
  return meeting;
}

/// A meeting whose writer has ended.
MeetingRecord gone_meeting() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  MeetingRecord meeting = own_meeting();
  meeting.pid = child;
  meeting.started = start_time_of(child).value();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return meeting;
}

std::string refusal(const auto& act, Errc code) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a meeting reads back as it was written, and nothing else does") {
  const MeetingRecord meeting = own_meeting();
  const std::string text = to_text(meeting);
  CHECK(meeting_from(text) == meeting);
  for (std::size_t size = 0; size < text.size(); ++size) {
    CHECK_FALSE(meeting_from(text.substr(0, size)));
  }
  CHECK_FALSE(meeting_from(text + "more\n"));
}

TEST_CASE("this process lives, an ended one is known to be gone, another machine's is not") {
  CHECK_FALSE(is_known_gone(own_meeting()));
  MeetingRecord gone = gone_meeting();
  CHECK(is_known_gone(gone));
  gone.machine = "another";
  CHECK_FALSE(is_known_gone(gone));
  // The pid was given to somebody else since.
  MeetingRecord reused = own_meeting();
  ++reused.started;
  CHECK(is_known_gone(reused));
}

TEST_CASE("the file is written once, replaced when stale, and removed by its writer alone") {
  const Path path;
  CHECK_FALSE(read_meeting(*path));
  const MeetingRecord stale = gone_meeting();
  write_meeting(*path, stale);
  CHECK(read_meeting(*path) == stale);

  const MeetingRecord mine = own_meeting();
  write_meeting(*path, mine);
  CHECK(read_meeting(*path) == mine);

  const std::string why = refusal([&] { write_meeting(*path, own_meeting()); }, Errc::refused);
  CHECK(why.find("pid " + std::to_string(::getpid())) != std::string::npos);

  remove_meeting(*path, stale);
  CHECK(read_meeting(*path) == mine);
  remove_meeting(*path, mine);
  CHECK_FALSE(read_meeting(*path));
}

TEST_CASE("an empty file is no meeting yet; another content is left alone") {
  const Path path;
  std::ofstream(*path).close();
  CHECK_FALSE(read_meeting(*path));
  write_meeting(*path, own_meeting());
  CHECK(read_meeting(*path));
  std::ofstream(*path) << "precious";
  CHECK(refusal([&] { write_meeting(*path, own_meeting()); }, Errc::misuse).find(*path) !=
        std::string::npos);
}

TEST_CASE("a path that cannot be written is named") {
  const std::string path = "/nonexistent-folder/meet";
  CHECK(refusal([&] { write_meeting(path, own_meeting()); }, Errc::unreachable).find(path) !=
        std::string::npos);
}
