#include "launcher/process/stack_dump.hpp"

#include "launcher/process/spawn.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <paths.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

constexpr mode_t file_mode = 0644;
/// Names this very program, even if its file was replaced by another version's.
constexpr const char* own_program = "/proc/self/exe";

/// The time for one tool. Ranks that are looked at one after the other share the limit; a quarter
/// of it is left to write down the results.
std::chrono::milliseconds limit_of_tool(const StackDump::Setting& setting) {
  const auto ranks = static_cast<std::size_t>(setting.last_rank - setting.first_rank + 1);
  const auto turns = static_cast<long>((ranks + stacks_at_once() - 1) / stacks_at_once());
  return std::chrono::duration_cast<std::chrono::milliseconds>(setting.limit / 4 * 3) / turns;
}

std::vector<std::string> line_of(const StackDump::Setting& setting) {
  std::vector<std::string> line = {
      "dlaunch",
      "stack",
      setting.job,
      "--rank",
      std::to_string(setting.first_rank) + "-" + std::to_string(setting.last_rank),
      "--timeout",
      std::to_string(limit_of_tool(setting).count()) + "ms"};
  if (!setting.file) line.emplace_back("--short");
  return line;
}

}  // namespace

std::size_t stacks_at_once() {
  constexpr std::size_t least = 2, most = 8;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), least, most);
}

StackDump::StackDump(boost::asio::io_context& io, const Setting& setting, Done done)
    : io_(io), done_(std::move(done)), timer_(io) {
  if (const int error = start(setting); error != 0) {
    finish((setting.file ? "into " + *setting.file + ": " : "") + errno_text(error));
    return;
  }
  timer_.expires_after(setting.limit);
  timer_.async_wait([this, alive = std::weak_ptr(alive_), limit = setting.limit](auto waited) {
    if (waited || alive.expired()) return;
    kill();
    finish("it did not end within " + duration_text(limit));
  });
}

StackDump::~StackDump() { kill(); }

/// Returns an errno.
int StackDump::start(const Setting& setting) {
  const unique_fd null(::open(_PATH_DEVNULL, O_RDONLY | O_CLOEXEC));
  unique_fd theirs;
  Output::Source source;
  if (setting.file) {
    constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    theirs.reset(::open(setting.file->c_str(), flags, file_mode));
    if (!theirs) return errno;
  } else if (setting.output != nullptr) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
    source.pipe.reset(ends[0]);
    theirs.reset(ends[1]);
    set_nonblocking(source.pipe.get(), true);
    source.rank = setting.first_rank;
    source.to = Stream::err;
    setting.output->add([&] {
      std::vector<Output::Source> sources;
      sources.push_back(std::move(source));
      return sources;
    }());
  }
  auto line = line_of(setting);
  std::vector<char*> words;
  for (auto& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  SpawnRequest request;
  request.path = own_program;
  request.argv = words.data();
  request.environ = ::environ;
  request.stdio[0] = null.get();
  request.stdio[1] = request.stdio[2] = theirs ? theirs.get() : STDERR_FILENO;
  request.mask = setting.mask;
  const SpawnResult result = spawn(request);
  pid_ = result.pid;
  return result.error;
}

/// A process that was not reaped still owns its number, and so its group's: the tools are in it.
void StackDump::kill() {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

void StackDump::ended(const ExitStatus& status) {
  pid_ = -1;
  timer_.cancel();
  if (status.succeeded()) return finish(std::nullopt);
  finish("dlaunch stack " + end_text(status.code, status.signal, status.core_dumped));
}

/// Reports later, not from within this call: the report makes us signal ranks, which may just be
/// being reaped.
void StackDump::finish(std::optional<std::string> problem) {
  if (!done_) return;
  boost::asio::post(
      io_, [done = std::exchange(done_, nullptr), problem = std::move(problem)] { done(problem); });
}

}  // namespace dlaunch::launcher
