// The log's format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
#include "rendezvous/state/sqlite_log.hpp"

#include "rendezvous/state/sqlite.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <vector>

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

namespace dlaunch::rendezvous::sqlite {
namespace {

constexpr std::size_t log_header_bytes = 32, frame_header_bytes = 24;
/// What a disk writes as a whole, at least.
constexpr std::uint64_t sector_bytes = 512;

using Raw = std::span<const unsigned char>;

std::uint32_t big_endian(Raw raw, std::size_t at) {
  std::uint32_t number = 0;
  for (const unsigned char byte : raw.subspan(at, 4)) number = number << 8 | byte;
  return number;
}

/// The running checksum over the header and all frames.
struct LogSum {
  std::uint32_t first = 0, second = 0;

  static LogSum stored(Raw raw, std::size_t at) {
    return {big_endian(raw, at), big_endian(raw, at + 4)};
  }
  void add(Raw raw, bool big) {
    const auto word = [&](std::size_t at) {
      const std::uint32_t number = big_endian(raw, at);
      return big ? number : __builtin_bswap32(number);
    };
    for (std::size_t at = 0; at < raw.size(); at += 8) {
      first += word(at) + second;
      second += word(at + 4) + first;
    }
  }
  bool operator==(const LogSum&) const = default;
};

/// Reads a log from its beginning, as SQLite does, and beyond the frame at which SQLite ends.
class LogReader {
 public:
  explicit LogReader(const std::string& path)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}

  /// What is wrong with it; empty where nothing is.
  std::string damage() {
    if (!file_ || read(header_) < header_.size()) return {};
    const std::uint32_t magic = big_endian(header_, 0), page = big_endian(header_, 8);
    big_ = (magic & 1) != 0;
    sum_.add(Raw(header_).first(24), big_);
    const bool sized = page >= 512 && page <= 65536 && (page & (page - 1)) == 0;
    if ((magic | 1) != 0x377f0683 || !sized || sum_ != LogSum::stored(header_, 24)) {
      return only_zeros() ? "" : "has no good header";
    }
    frame_.resize(frame_header_bytes + page);
    while (read(frame_) == frame_.size()) note_frame();
    if (!lost_) return {};
    return "is damaged at frame " + std::to_string(bad_) + ", byte " +
           std::to_string(log_header_bytes + (bad_ - 1) * frame_.size()) + ": " +
           plural(static_cast<long>(unused_), "frame") + " behind it cannot be used";
  }

 private:
  /// Less than what was asked for at the log's end only.
  std::size_t read(std::span<unsigned char> into) {
    std::size_t got = 0;
    while (got < into.size()) {
      const ssize_t count = ::pread(file_.get(), into.data() + got, into.size() - got,
                                    static_cast<off_t>(offset_ + got));
      if (count < 0) throw Failure(SQLITE_IOERR, "its log cannot be read", errno);
      if (count == 0) break;
      got += static_cast<std::size_t>(count);
    }
    offset_ += got;
    return got;
  }
  /// What a loss of power may leave of a log that was just made.
  bool only_zeros() {
    const auto is_zero = [](unsigned char byte) { return byte == 0; };
    if (!std::ranges::all_of(header_, is_zero)) return false;
    std::array<unsigned char, 4096> more{};
    for (std::size_t got = more.size(); got == more.size();) {
      got = read(more);
      if (!std::ranges::all_of(Raw(more).first(got), is_zero)) return false;
    }
    return true;
  }
  /// A frame is written only once the transaction before it is synced. So one that continues the
  /// sum of a commit proves that this commit, and all before it, was whole: what is bad there was
  /// damaged later. Nothing follows the last transaction, of which a loss of power may leave any
  /// part, and remains of another log have other salts.
  void note_frame() {
    ++number_;
    const Raw frame = frame_;
    const bool ours = std::ranges::equal(frame.subspan(8, 8), Raw(header_).subspan(16, 8)) &&
                      big_endian(frame, 0) != 0;
    sum_.add(frame.first(8), big_);
    sum_.add(frame.subspan(frame_header_bytes), big_);
    const LogSum stored = LogSum::stored(frame, 16);
    const bool continues = ours && sum_ == stored;
    if (!continues && bad_ == 0) bad_ = number_;
    if (bad_ != 0 && number_ > bad_) {
      unused_ += ours ? 1 : 0;
      lost_ = lost_ || (continues && behind_commit_);
    }
    // The head of a bad frame is believed where a disk writes it as a whole.
    const bool head_is_whole =
        (offset_ - frame.size()) % sector_bytes <= sector_bytes - frame_header_bytes;
    behind_commit_ = big_endian(frame, 4) != 0 && ours && (continues || head_is_whole);
    sum_ = stored;
  }

  const unique_fd file_;
  std::uint64_t offset_ = 0;
  std::array<unsigned char, log_header_bytes> header_{};
  std::vector<unsigned char> frame_;
  bool big_ = false;  ///< The sum is over big-endian words.
  LogSum sum_;
  std::uint64_t number_ = 0, bad_ = 0, unused_ = 0;  ///< Counted from 1.
  bool behind_commit_ = false, lost_ = false;
};

}  // namespace

std::string damage_of_log(const std::string& path) { return LogReader(path).damage(); }

}  // namespace dlaunch::rendezvous::sqlite
