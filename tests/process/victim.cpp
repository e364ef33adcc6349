// What the process tests start, signal and kill: `victim MODE TOKEN [NUMBER]`. No library of ours.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

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
    wait_for_death();
  }
  if (mode == "port") {
    say(std::string("port ") + std::getenv("MASTER_PORT"));
    wait_for_death();
  }
  return 2;
}
