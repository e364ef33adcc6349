#include "launcher/output/output.hpp"

#include "launcher/output/row_text.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

namespace dlaunch::launcher {
namespace {

constexpr std::size_t read_bytes = 64u << 10;
/// The most pieces that are queued before they are emitted.
constexpr std::size_t pieces_max = 256;
/// The most memory that is kept for later pieces.
constexpr std::size_t kept_bytes_max = 1u << 20;
constexpr std::size_t wake_key = 0;
/// The time between two looks of a paced pump, and so the longest that a line waits.
constexpr auto pace = std::chrono::milliseconds(5);
/// A program may print tracebacks as fast as it can.
constexpr auto traceback_interval = std::chrono::milliseconds(100);

/// True when both descriptors end in the same terminal, file or pipe.
bool same_target(int a, int b) {
  struct stat first {
  }, second{};
  if (::fstat(a, &first) != 0 || ::fstat(b, &second) != 0) return false;
  if (first.st_dev == second.st_dev && first.st_ino == second.st_ino) return true;
  // /dev/tty is another file than the terminal it stands for.
  unsigned one = 0, other = 0;
  return ::ioctl(a, TIOCGDEV, &one) == 0 && ::ioctl(b, TIOCGDEV, &other) == 0 && one == other;
}

Surfaces surfaces_of(int out_fd, int err_fd, bool redraws) {
  return {.one = same_target(out_fd, err_fd),
          .out_is_terminal = redraws && ::isatty(out_fd) == 1,
          .err_is_terminal = redraws && ::isatty(err_fd) == 1};
}

void watch(int epoll, int fd, std::size_t key) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    throw Error(Errc::internal, "cannot watch a worker's output: " + errno_text(errno));
  }
}

}  // namespace

Output::Output(int out_fd, int err_fd, Manner manner, OnTraceback on_traceback)
    : out_fd_(out_fd),
      err_fd_(err_fd),
      manner_(std::move(manner)),
      surfaces_(surfaces_of(out_fd, err_fd, manner_.redraws)),
      on_traceback_(std::move(on_traceback)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      lines_(surfaces_) {
  if (!epoll_ || !wake_) {
    throw Error(Errc::internal, "cannot open descriptors for the output: " + errno_text(errno));
  }
  watch(epoll_.get(), wake_.get(), wake_key);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Output::~Output() {
  thread_.request_stop();
  wake();
}

void Output::add(std::vector<Source> sources) {
  const std::lock_guard lock(mutex_);
  for (auto& source : sources) {
    // The watch begins here, not when the pump's thread gets to it: sources that are ready before
    // their watches begin would be read in the order of the watches, not of their output.
    const std::size_t key = next_key_++;
    watch(epoll_.get(), source.pipe.get(), key);
    added_.push_back({.key = key, .source = std::move(source)});
  }
}

Output::Pace::Pace(Output* output) : output_(output) {
  if (output_ == nullptr) return;
  const std::lock_guard lock(output_->mutex_);
  output_->paced_ = true;
}

Output::Pace::~Pace() {
  if (output_ == nullptr) return;
  const std::lock_guard lock(output_->mutex_);
  output_->paced_ = false;
  output_->unpaced_.notify_one();
}

void Output::say(std::string line) {
  const std::lock_guard lock(mutex_);
  commands_.said.push_back({std::move(line)});
  wake();
}

void Output::show_row(std::string text) {
  const std::lock_guard lock(mutex_);
  commands_.said.push_back({std::move(text), true});
  wake();
}

void Output::catch_up(std::function<void()> done) {
  const std::lock_guard lock(mutex_);
  commands_.catch_ups.push_back(std::move(done));
  wake();
}

void Output::drain(std::function<void()> done) {
  const std::lock_guard lock(mutex_);
  commands_.drains.push_back(std::move(done));
  wake();
}

std::vector<std::string> Output::error_tail(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = tails_.find(rank);
  return found == tails_.end() ? std::vector<std::string>{} : found->second;
}

void Output::forget_tails() {
  const std::lock_guard lock(mutex_);
  tails_.clear();
  written_.clear();
}

std::uint64_t Output::bytes_of(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto known = bytes_.find(rank);
  return known == bytes_.end() ? 0 : known->second;
}

std::vector<WriteSpans::Span> Output::log_spans(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = written_.find(path);
  return found == written_.end() ? std::vector<WriteSpans::Span>{} : found->second.spans();
}

void Output::wake() {
  // An eventfd refuses only when 2^64 wake-ups are pending, and then one more changes nothing.
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void Output::run(const std::stop_token& stop) {
  buffer_.resize(read_bytes);
  std::vector<std::size_t> ready;
  while (!stop.stop_requested()) {
    keep_pace(stop);
    ready.clear();
    const bool all_ready = wait_for_events(ready);
    start_added();
    for (const auto key : ready) {
      const auto found = active_.find(key);
      if (found == active_.end()) continue;
      if (read_some(found->second) == Read::ended) end(key);
      if (pieces_.size() >= pieces_max) write_pieces();
    }
    if (all_ready) {
      for (const auto& done : std::exchange(catching_up_, {})) done();
    }
    measure_terminals();
    lines_.flush_due(Clock::now(), pieces_);
    write_pieces();
    take_commands();
  }
}

void Output::keep_pace(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (paced_) unpaced_.wait_for(lock, stop, pace, [this] { return !paced_; });
}

/// Returns false if more sources may be ready than were reported.
bool Output::wait_for_events(std::vector<std::size_t>& ready) {
  std::array<epoll_event, 64> events;
  const auto due = catching_up_.empty() ? lines_.next_deadline().value_or(Clock::time_point::max())
                                        : Clock::time_point::min();
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 poll_timeout_ms(due));
  for (int i = 0; i < count; ++i) {
    const auto key = events[static_cast<std::size_t>(i)].data.u64;
    if (key == wake_key) {
      std::uint64_t times = 0;
      [[maybe_unused]] const auto taken = ::read(wake_.get(), &times, sizeof times);
    } else {
      ready.push_back(key);
    }
  }
  return count >= 0 && count < static_cast<int>(events.size());
}

/// Measures terminals again and again: only the foreground is told when a window changes its size.
void Output::measure_terminals() {
  const auto measure = [this](bool is_terminal, Stream stream, int fd) {
    winsize size{};
    if (is_terminal && ::ioctl(fd, TIOCGWINSZ, &size) == 0) lines_.resize(stream, size.ws_col);
  };
  measure(surfaces_.err_is_terminal, Stream::err, err_fd_);
  measure(surfaces_.out_is_terminal, Stream::out, out_fd_);
}

void Output::take_commands() {
  Commands commands;
  {
    const std::lock_guard lock(mutex_);
    std::swap(commands, commands_);
  }
  start_added();
  for (const auto& [text, row] : commands.said) {
    row ? draw_row(text) : lines_.say(Stream::err, text, pieces_);
  }
  for (auto& done : commands.catch_ups) catching_up_.push_back(std::move(done));
  if (!commands.drains.empty()) empty_pipes();
  write_pieces();
  for (const auto& done : commands.drains) done();
}

/// Draws the row like a rank's progress; at the end it becomes a whole line.
void Output::draw_row(const std::string& text) {
  const auto now = Clock::now();
  if (text.empty()) {
    if (!row_) return;
    lines_.feed(*row_, "\r" + row_text_, now, pieces_);
    lines_.end(*row_, now, pieces_);
    return row_.reset();
  }
  if (!row_) row_ = lines_.add({.to = Stream::err, .prefix = {}});
  row_text_ = text;
  lines_.feed(*row_, "\r" + fitting(text, lines_.columns(Stream::err)), now, pieces_);
}

void Output::empty_pipes() {
  while (!active_.empty()) {
    // Writing may find its reader gone and close sources, so each is looked up again.
    const auto key = active_.begin()->first;
    for (auto it = active_.find(key); it != active_.end(); it = active_.find(key)) {
      const Read result = read_some(it->second);
      if (result != Read::some) end(key);
      write_pieces();
    }
  }
}

void Output::start_added() {
  std::vector<Added> added;
  {
    const std::lock_guard lock(mutex_);
    std::swap(added, added_);
  }
  for (auto& [key, source] : added) {
    const std::size_t number = lines_.add({.to = source.to,
                                           .prefix = prefix_of(source),
                                           .shown = source.shown,
                                           .keeps_tail = source.carries_errors});
    active_.emplace(key, Active{.source = std::move(source), .number = number});
  }
}

std::string Output::prefix_of(const Source& source) const {
  const bool to_out = surfaces_.one || source.to == Stream::out;
  const bool terminal = to_out ? surfaces_.out_is_terminal : surfaces_.err_is_terminal;
  return terminal && manner_.colours ? coloured_prefix(source.prefix, source.rank) : source.prefix;
}

Output::Read Output::read_some(Active& active) {
  const auto size = ::read(active.source.pipe.get(), buffer_.data(), buffer_.size());
  if (size < 0) return errno == EAGAIN || errno == EINTR ? Read::nothing : Read::ended;
  if (size == 0) return Read::ended;
  const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(size));
  {
    const std::lock_guard lock(mutex_);
    bytes_[active.source.rank] += bytes.size();
  }
  log(active, bytes);
  if (active.source.filter) log_filtered(active, active.source.filter->feed(bytes));
  const auto now = Clock::now();
  if (active.source.carries_errors && active.tracebacks.feed(bytes)) tell_traceback(active, now);
  show(active, bytes, now);
  return Read::some;
}

void Output::show(Active& active, std::string_view bytes, Clock::time_point now) {
  auto& told = active.source.told;
  if (!told) return lines_.feed(active.number, bytes, now, pieces_);
  const std::string news = told->feed(bytes);
  if (!news.empty()) lines_.feed(active.number, news, now, pieces_);
}

void Output::tell_traceback(Active& active, Clock::time_point now) {
  if (!on_traceback_ || (active.told && now - *active.told < traceback_interval)) return;
  active.told = now;
  on_traceback_(active.source.rank, now);
}

void Output::end(std::size_t key) {
  const auto found = active_.find(key);
  Active& active = found->second;
  if (active.source.filter) log_filtered(active, active.source.filter->end());
  if (active.source.told) {
    lines_.feed(active.number, active.source.told->end(), Clock::now(), pieces_);
  }
  lines_.end(active.number, Clock::now(), pieces_);
  if (active.source.carries_errors) {
    auto tail = lines_.tail(active.number);
    const std::lock_guard lock(mutex_);
    tails_[active.source.rank] = std::move(tail);
  }
  // Closing alone would not end the watch while a child that is about to exec has a copy.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, active.source.pipe.get(), nullptr);
  active_.erase(found);
}

void Output::log(Active& active, std::string_view bytes) {
  if (!active.source.log) return;
  if (write_all(active.source.log.get(), bytes)) {
    const std::lock_guard lock(mutex_);
    written_[active.source.log_path].add(bytes.size(), Clock::now());
    return;
  }
  say_log_ends(active.source.log_path, "the log of rank " + std::to_string(active.source.rank));
  active.source.log.reset();
}

void Output::log_filtered(Active& active, std::string_view lines) {
  auto& log = active.source.filtered;
  if (!log->fd || write_all(log->fd.get(), lines)) return;
  say_log_ends(log->path, "the filtered log of all ranks");
  log->fd.reset();
}

void Output::say_error(const std::string& sentence) {
  const auto line = manner_.voice.line({Level::error, sentence}, WallClock::now());
  if (line) lines_.say(Stream::err, *line, pieces_);
}

void Output::say_log_ends(const std::string& path, const std::string& what) {
  incomplete_ = true;
  say_error("cannot write " + path + ": " + errno_text(errno) + "; " + what + " ends here");
}

void Output::write_pieces() {
  // By number: a stream that cannot be written adds a sentence at the end.
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Stream to = pieces_[i].to;
    bool& broken = to == Stream::out ? out_broken_ : err_broken_;
    if (broken || write_all(to == Stream::out ? out_fd_ : err_fd_, pieces_[i].text)) continue;
    const int error = errno;
    broken = true;
    if (error == EPIPE) {
      reader_gone(to);
    } else {
      cannot_write(to, error);
    }
  }
  if (pieces_.empty() || pieces_.front().text.capacity() > kept_bytes_max) return pieces_.clear();
  // The first one's memory is used again: the kernel would clear new pages for each flood.
  pieces_.resize(1);
  pieces_.front().text.clear();
}

bool Output::write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto size = ::write(fd, text.data(), text.size());
    if (size >= 0) {
      text.remove_prefix(static_cast<std::size_t>(size));
    } else if (errno == EAGAIN) {
      // Another process that shares our terminal made it non-blocking.
      pollfd wait{fd, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

/// Nobody reads this stream any more (`dlaunch ... | head`): the workers learn it as they would
/// without us, by SIGPIPE on their next line. A source that is also logged goes on.
void Output::reader_gone(Stream stream) {
  (stream == Stream::out ? out_reader_gone_ : err_reader_gone_) = true;
  Pieces dropped;
  for (auto it = active_.begin(); it != active_.end();) {
    const auto& source = it->second.source;
    const bool for_the_reader = source.shown && !source.log && !source.filter;
    if (source.to != stream || !for_the_reader) {
      ++it;
      continue;
    }
    lines_.end(it->second.number, Clock::now(), dropped);
    it = active_.erase(it);
  }
}

/// A full disk is no reason to end the workers, whose pipes are read on.
void Output::cannot_write(Stream stream, int error) {
  incomplete_ = true;
  say_error(std::string(stream == Stream::out ? "stdout" : "stderr") + ": cannot write: " +
            errno_text(error) + "; what the workers print there is lost from here on");
}

}  // namespace dlaunch::launcher
