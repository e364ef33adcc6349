#include "launcher/subcommands/log_view.hpp"

#include "runtime/base/os/program.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

constexpr std::size_t read_bytes = 64u << 10;

/// Moves to the beginning of the line that contains the byte `begin`, or to the end.
void seek_line(int fd, std::uint64_t begin) {
  const auto size = ::lseek(fd, 0, SEEK_END);
  if (size <= 0 || begin >= static_cast<std::uint64_t>(size)) return;
  std::vector<char> before(std::min<std::size_t>(begin, read_bytes));
  const auto from = begin - before.size();
  const auto got = ::pread(fd, before.data(), before.size(), static_cast<off_t>(from));
  const std::string_view text(before.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  const auto end_of_line = text.rfind('\n');
  // A longer line is shown from its middle on.
  const auto at = from == 0 && end_of_line == text.npos ? 0
                  : end_of_line == text.npos            ? begin
                                                        : from + end_of_line + 1;
  ::lseek(fd, static_cast<off_t>(at), SEEK_SET);
}

}  // namespace

LogView::LogView(Manner manner)
    : manner_(manner),
      lines_({.one = true, .out_is_terminal = manner.terminal}),
      buffer_(read_bytes) {}

std::string LogView::show(const std::vector<LogFile>& files) {
  std::string problems;
  catch_up();
  std::vector<std::string> order;
  for (const auto& file : files) order.push_back(file.path);
  for (const auto& path : std::exchange(order_, std::move(order))) {
    if (std::find(order_.begin(), order_.end(), path) != order_.end()) continue;
    const auto gone = open_.extract(path);
    if (gone.mapped().fd) lines_.end(gone.mapped().number, Clock::now(), pieces_);
  }
  for (const auto& file : files) {
    const auto [at, is_new] = open_.try_emplace(file.path);
    if (!is_new) continue;
    at->second.fd.reset(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!at->second.fd) {
      problems += "dlaunch logs: cannot read " + file.path + ": " + errno_text(errno) + "\n";
      continue;
    }
    if (file.begin > 0) seek_line(at->second.fd.get(), file.begin);
    at->second.number = lines_.add(
        {.to = Stream::out,
         .prefix = manner_.colours ? coloured_prefix(file.prefix, file.rank) : file.prefix});
  }
  write_pieces();
  return problems;
}

int LogView::catch_up() {
  for (const auto& path : order_) {
    const Open& file = open_.at(path);
    if (file.fd) read(file);
  }
  lines_.flush_due(Clock::now(), pieces_);
  return write_pieces();
}

int LogView::end() {
  for (const auto& path : order_) {
    const Open& file = open_.at(path);
    if (!file.fd) continue;
    read(file);
    lines_.end(file.number, Clock::now(), pieces_);
  }
  order_.clear();
  open_.clear();
  return write_pieces();
}

/// Reads a file up to its present end, so that a rank that writes faster than we read does not hold
/// up the others for ever.
void LogView::read(const Open& file) {
  const auto size = ::lseek(file.fd.get(), 0, SEEK_CUR);
  const auto limit = ::lseek(file.fd.get(), 0, SEEK_END);
  if (size < 0 || limit < 0 || ::lseek(file.fd.get(), size, SEEK_SET) < 0) return;
  for (auto left = limit - size; left > 0 && code_ == 0;) {
    const auto most = std::min<std::size_t>(static_cast<std::size_t>(left), buffer_.size());
    const auto got = ::read(file.fd.get(), buffer_.data(), most);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    lines_.feed(file.number, std::string_view(buffer_.data(), static_cast<std::size_t>(got)),
                Clock::now(), pieces_);
    left -= got;
    write_pieces();
  }
}

int LogView::write_pieces() {
  for (const auto& piece : std::exchange(pieces_, {})) {
    if (code_ == 0) code_ = say_and_exit_with(0, piece.text);
  }
  return code_;
}

}  // namespace dlaunch::launcher
