#include "rendezvous/state/sqlite_place.hpp"

#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <cerrno>
#include <chrono>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::rendezvous {
namespace {

constexpr auto room_pause = std::chrono::milliseconds(500);

}  // namespace

SqlitePlace::SqlitePlace(StateFile file)
    : file_(std::move(file)), reserve_(file_.own_path()), full_(!reserve_.take()) {}

StatePlace::Wrote SqlitePlace::write(std::span<const Change> changes) {
  auto wrote = file_.write(changes);
  if (wrote == StateFile::Wrote::no_space) {
    full_ = true;
    reserve_.give_up();
    wrote = file_.write(changes);  // There may be room now.
  }
  starved_ = wrote == StateFile::Wrote::no_memory;
  return wrote == StateFile::Wrote::all ? Wrote::all : Wrote::not_now;
}

Clock::time_point SqlitePlace::tend() {
  file_.tidy();
  if (full_ && reserve_.take()) full_ = false;
  return full_ ? Clock::now() + room_pause : Clock::time_point::max();
}

StatePlace::Obstacle SqlitePlace::obstacle() const {
  if (starved_) {
    return {"no memory is left to write to " + file_.path() +
                ": nothing is changed until there is some",
            "there is memory again to write to " + file_.path()};
  }
  if (!full_) return {};
  return {
      "no space left on device for " + file_.path() + ": nothing is changed until there is room",
      "there is room again for " + file_.path(), true};
}

/// The backups' own folder: none of SQLite's files has a name there, and only the daemon that has
/// the file locked writes there.
std::unique_ptr<Backup> SqlitePlace::back_up(const std::string& name) {
  const std::string folder = file_.own_path() + "-backups";
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    throw Error(Errc::refused,
                "cannot make the folder " + in_quotes(folder) + ": " + errno_text(errno));
  }
  const std::string part = folder + "/unfinished.part";
  ::unlink(part.c_str());  // A daemon that was killed left it.
  return file_.copy_to(folder + "/" + name + ".db", part);
}

}  // namespace dlaunch::rendezvous
