#include "rendezvous/state/state_file_state.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace dlaunch::rendezvous {
namespace {

/// Pages of a step: 1 MiB, so that changes do not wait longer than that takes.
constexpr int pages_a_step = 256;
/// How much may be unsynced: a disk that had to take everything at the end would delay the state's
/// own syncs.
constexpr std::uint64_t unsynced_bytes_max = 16u << 20;

Error cannot_write(const std::string& path, const std::string& why) {
  return {Errc::refused, "cannot write " + in_quotes(path) + ": " + why};
}

void require_absent(const std::string& path) {
  for (const std::string& file : {path, path + "-wal", path + "-journal"}) {
    if (::faccessat(AT_FDCWD, file.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) continue;
    throw Error(Errc::refused, in_quotes(file) + " is there already; move it away first");
  }
}

/// The copy uses the state file's own connection: a second one could lose checkpointed pages, and
/// could not get past the exclusive lock.
class FileCopy final : public Backup {
 public:
  FileCopy(sqlite::Connection& from, std::string path, std::string part)
      : path_(std::move(path)),
        part_(std::move(part)),
        page_bytes_(std::stoull(from.ask("PRAGMA page_size").value_or("0"))) {
    require_absent(path_);
    file_ =
        unique_fd(::open(part_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file_) throw cannot_write(part_, errno_text(errno));
    try {
      into_.emplace(part_, sqlite::Connection::Mode::existing);
      into_->execute("PRAGMA locking_mode=EXCLUSIVE");
      // SQLite need not sync: an incomplete copy is thrown away, and a complete one is synced
      // below.
      into_->execute("PRAGMA journal_mode=OFF");
      into_->execute("PRAGMA synchronous=OFF");
      copy_.emplace(from, *into_);
    } catch (const sqlite::Failure& failure) {
      clear();
      throw failed(failure);
    }
  }
  ~FileCopy() override {
    copy_.reset();
    into_.reset();
    if (file_) clear();
  }

  bool step() override {
    try {
      const bool whole = copy_->step(pages_a_step);
      note_progress();
      if (!whole) return false;
      close();
    } catch (const sqlite::Failure& failure) {
      throw failed(failure);
    }
    publish();
    return true;
  }
  const std::string& path() const override { return path_; }
  Size size() const override { return size_; }

 private:
  void note_progress() {
    const auto pages = static_cast<std::uint64_t>(copy_->pages());
    const auto left = static_cast<std::uint64_t>(copy_->pages_left());
    size_ = {(pages - left) * page_bytes_, pages * page_bytes_};
    if (size_.copied < synced_ + unsynced_bytes_max) return;
    sync();
    synced_ = size_.copied;
  }
  /// As a file of its own, it needs no log beside it to be read.
  void close() {
    copy_.reset();
    into_->ask("SELECT count(*) FROM sqlite_master");
    into_->execute("PRAGMA journal_mode=DELETE");
    into_.reset();
  }
  /// The copy gets its name once it is safe, and replaces no file that came there meanwhile.
  void publish() {
    sync();
    if (::link(part_.c_str(), path_.c_str()) != 0) {
      if (errno == EEXIST) require_absent(path_);
      throw cannot_write(path_, errno_text(errno));
    }
    clear();
    file_.reset();
    const auto folder = std::filesystem::path(path_).parent_path();
    const unique_fd entry(
        ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!entry || ::fsync(entry.get()) != 0) throw cannot_write(path_, errno_text(errno));
  }
  void sync() const {
    if (::fsync(file_.get()) != 0) throw cannot_write(part_, errno_text(errno));
  }
  /// What this copy has made: never another's.
  void clear() const {
    ::unlink(part_.c_str());
    ::unlink((part_ + "-journal").c_str());
  }
  Error failed(const sqlite::Failure& failure) const {
    if (!failure.no_space()) return cannot_write(part_, failure.what());
    return {Errc::unreachable, cannot_write(part_, "no space left on device").what()};
  }

  const std::string path_, part_;
  const std::uint64_t page_bytes_;
  unique_fd file_;  ///< Until the copy has its name.
  std::optional<sqlite::Connection> into_;
  std::optional<sqlite::PageCopy> copy_;
  Size size_;
  std::uint64_t synced_ = 0;
};

}  // namespace

std::unique_ptr<Backup> StateFile::copy_to(const std::string& path, const std::string& part) {
  return std::make_unique<FileCopy>(state_->file, path, part);
}

}  // namespace dlaunch::rendezvous
