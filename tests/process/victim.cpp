// The program that the process tests start, signal and kill: `victim MODE TOKEN [NUMBER]`. No
// library of ours.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

const char* rank_text() {
  const char* rank = std::getenv("RANK");
  return rank != nullptr ? rank : "?";
}
int rank() { return std::atoi(rank_text()); }

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

[[noreturn]] void wait_for_death() {
  for (;;) ::pause();
}

/// A grandchild in a session of its own, whose parent is gone: the hardest to find again. It
/// ignores every signal that can be ignored.
void leave_a_daemon() {
  int ready[2];
  if (::pipe(ready) != 0) std::exit(2);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    ::setsid();
    for (int number = 1; number < 32; ++number) ::signal(number, SIG_IGN);
    char byte = 0;
    if (::write(ready[1], &byte, 1) != 1) ::_exit(2);
    wait_for_death();
  }
  ::waitpid(child, nullptr, 0);
  char byte = 0;
  if (::read(ready[0], &byte, 1) != 1) std::exit(2);
}

int tree() {
  leave_a_daemon();
  const pid_t loader = ::fork();  // An ordinary child.
  if (loader == 0) wait_for_death();
  if (loader < 0) return 2;
  say("READY " + std::to_string(::getpid()));
  wait_for_death();
}

/// Orphans that end at once: the launcher's zombies.
int zombies(int number) {
  for (int i = 0; i < number; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::fork() == 0) ::_exit(0);
      ::_exit(0);
    }
    if (child < 0 || ::waitpid(child, nullptr, 0) != child) return 2;
  }
  say("READY");
  wait_for_death();
}

volatile std::sig_atomic_t got = 0;
void note(int number) { got = number; }

/// Says which signals come; ends on none of them.
int stubborn() {
  struct sigaction action {};
  action.sa_handler = note;
  sigset_t all, before;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH}) {
    ::sigaction(number, &action, nullptr);
  }
  say("READY " + std::to_string(::getpid()));
  for (;;) {
    ::sigsuspend(&before);
    if (got != 0) say(std::string("got ") + std::to_string(got));
    got = 0;
  }
}

/// Many lines, written in pieces that are no lines.
int lines(int number) {
  std::string text;
  for (int i = 0; i < number; ++i) {
    text += "rank " + std::string(rank_text()) + " line " + std::to_string(i) + " " +
            std::string(static_cast<std::size_t>(i % 97), 'x') + " end\n";
  }
  for (std::size_t at = 0; at < text.size();) {
    const auto size = ::write(1, text.data() + at, std::min<std::size_t>(1000, text.size() - at));
    if (size < 0) return 2;
    at += static_cast<std::size_t>(size);
  }
  return 0;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "?";
}

/// A file of a process in /proc, with NUL between the parts and in front of the first.
std::string parts_of(const std::string& process, const char* file) {
  std::string text(1, '\0');
  const int fd = ::open(("/proc/" + process + "/" + file).c_str(), O_RDONLY);
  if (fd < 0) return text;
  char block[4096];
  for (ssize_t size = 0; (size = ::read(fd, block, sizeof block)) > 0;) {
    text.append(block, static_cast<std::size_t>(size));
  }
  ::close(fd);
  return text;
}

/// How many processes with our token live that belong to another epoch.
int of_other_epochs(const std::string& token) {
  using namespace std::string_literals;
  const std::string own = "\0DLAUNCH_WORKER_EPOCH="s + variable("DLAUNCH_WORKER_EPOCH") + "\0"s;
  int found = 0;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (parts_of(name, "cmdline").find("\0" + token + "\0"s) == std::string::npos) continue;
    const std::string environment = parts_of(name, "environ");
    const bool worker = environment.find("\0DLAUNCH_WORKER_EPOCH="s) != std::string::npos;
    if (worker && environment.find(own) == std::string::npos) ++found;
  }
  ::closedir(proc);
  return found;
}

/// Says its place in which epoch, and that it lives, ten times a second; so often, or for ever.
int ticking(const std::string& token, int number) {
  const int others = of_other_epochs(token);
  leave_a_daemon();
  say("place " + variable("DLAUNCH_WORKER_EPOCH") + " " + variable("RANK") + " " +
      variable("WORLD_SIZE") + " beside " + std::to_string(others));
  for (int i = 0; number == 0 || i < number; ++i) {
    const timespec pause{0, 100'000'000};
    ::nanosleep(&pause, nullptr);
    say("tick");
  }
  return 0;
}

int terminal() {
  std::string text = "tty";
  for (int fd = 0; fd < 3; ++fd) text += ::isatty(fd) == 1 ? " yes" : " no";
  text += ::tcgetpgrp(0) == ::getpgrp() ? " foreground" : " background";
  say(text);
  char line[100];
  while (std::fgets(line, sizeof line, stdin) != nullptr) say(std::string("read ") + line);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string mode = argv[1];
  const int number = argc > 3 ? std::atoi(argv[3]) : 0;
  if (mode == "exit") return number;
  if (mode == "raise") return ::raise(number);
  if (mode == "wait") say("READY " + std::to_string(::getpid())), wait_for_death();
  if (mode == "tree") return tree();
  if (mode == "zombies") return zombies(number);
  if (mode == "stubborn") return stubborn();
  if (mode == "lines") return lines(number);
  if (mode == "terminal") return terminal();
  if (mode == "ticking") return ticking(argv[2], number);
  // Rank NUMBER fails when it is told to, all others wait.
  if (mode == "fail") {
    if (rank() != number) say("READY"), wait_for_death();
    std::fprintf(stderr, "the reason of rank %d\n", number);
    return 3;
  }
  if (mode == "attempts") {
    say(std::string("attempt ") + std::getenv("TORCHELASTIC_RESTART_COUNT"));
    return 5;
  }
  if (mode == "daemon") {  // Succeeds, and leaves something behind.
    leave_a_daemon();
    return 0;
  }
  if (mode == "progress") {  // tqdm-like: no newline, then waits.
    std::fprintf(stderr, "\r 10%%\r 20%%");
    say("READY");
    wait_for_death();
  }
  if (mode == "port") {
    say(std::string("port ") + std::getenv("MASTER_PORT"));
    wait_for_death();
  }
  return 2;
}
