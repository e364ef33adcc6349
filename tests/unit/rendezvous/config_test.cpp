#include "rendezvous/daemon/config.hpp"

#include "rendezvous/daemon/process_figures.hpp"
#include "rendezvous/daemon/state_commands.hpp"

#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using Arguments = std::vector<std::string>;

namespace {

/// Reads arguments and, where there is one, the file "d.toml".
std::variant<Config, EarlyExit> read(Arguments arguments, const std::string& file = "") {
  if (!file.empty()) arguments.insert(arguments.end(), {"--config", "d.toml"});
  return read_config(arguments, [&](const std::string& path) -> std::optional<std::string> {
    if (path != "d.toml") return std::nullopt;
    return file;
  });
}

Config good(const Arguments& arguments, const std::string& file = "") {
  const auto result = read(arguments, file);
  if (const auto* exit = std::get_if<EarlyExit>(&result)) FAIL(exit->text);
  return std::get<Config>(result);
}

/// The refusal's sentence with its code: "64 --listen x: ...".
std::string bad(const Arguments& arguments, const std::string& file = "") {
  const auto result = read(arguments, file);
  const auto* exit = std::get_if<EarlyExit>(&result);
  REQUIRE(exit != nullptr);
  const std::string before = "dlaunchd: ";
  REQUIRE(exit->text.starts_with(before));
  REQUIRE(exit->text.ends_with('\n'));
  return std::to_string(exit->code) + " " +
         exit->text.substr(before.size(), exit->text.size() - before.size() - 1);
}

}  // namespace

TEST_CASE("defaults") {
  const Config config = good({});
  CHECK(config.listen == std::vector<ListenAt>{{"127.0.0.1", 29400}});
  CHECK(config.http == ListenAt{"127.0.0.1", 29401});
  CHECK(config.secret_file.empty());
  CHECK(!config.trust_loopback);
  CHECK(config.socket_mode == 0660);
  CHECK(config.socket_group.empty());
  CHECK(config.state == "memory");
  CHECK(config.rules.jobs_max == 1024);
  CHECK(config.rules.nodes_per_job_max == 20'000);
  CHECK(config.rules.limits.keys == 1u << 20);
  CHECK(config.rules.limits.total_bytes == std::size_t{4} << 30);
  CHECK(!config.memory_max);
  CHECK(config.rules.connections_per_job_max == 32'768);
  CHECK(config.rules.connections.peer == 32'768);
  CHECK(config.rules.asked_time_max == std::chrono::hours(24));
  CHECK(config.rules.remember == std::chrono::minutes(10));
  CHECK(config.drain_timeout == std::chrono::seconds(30));
  CHECK(!config.check);
}

TEST_CASE("the command line wins over the file, and the file over the defaults") {
  const std::string file =
      "# comment\nlisten = [\"127.0.0.1:1\", \"[::1]:2\"]\njobs-max = 7\nbytes-max = \"64MiB\"\n"
      "remember = \"1h\"\nlog-level = \"error\"\nhttp = \"off\"\ntrust-loopback = true\n";
  const Config from_file = good({}, file);
  CHECK(from_file.listen == std::vector<ListenAt>{{"127.0.0.1", 1}, {"::1", 2}});
  CHECK(from_file.rules.jobs_max == 7);
  CHECK(from_file.trust_loopback);
  CHECK(from_file.rules.limits.total_bytes == 64u << 20);
  CHECK(good({"--memory-max", "2GiB"}).memory_max == std::size_t{2} << 30);
  CHECK(from_file.rules.remember == std::chrono::hours(1));
  CHECK(from_file.log_level == LogLine::Level::error);
  CHECK(!from_file.http);
  CHECK(from_file.config == "d.toml");
  const Config both = good({"--listen", "localhost:3", "--jobs-max=8", "--listen=127.0.0.2:4",
                            "--http", "[::1]:0", "--check"},
                           file);
  CHECK(both.listen == std::vector<ListenAt>{{"localhost", 3}, {"127.0.0.2", 4}});
  CHECK(both.rules.jobs_max == 8);
  CHECK(both.http == ListenAt{"::1", 0});
  CHECK(both.check);
}

TEST_CASE("a wrong command line: what, and what to do") {
  CHECK(bad({"--listen", "29400"}) ==
        "64 --listen 29400: '29400' is not HOST:PORT, as in 127.0.0.1:29400 or [::1]:29400");
  CHECK(bad({"--listen", "::1:29400"}) ==
        "64 --listen ::1:29400: '::1:29400': an IPv6 address with a port stands in brackets, as in "
        "[::1]:29400");
  CHECK(bad({"--listen", "a:70000"}) ==
        "64 --listen a:70000: 'a:70000': the port: at most 65535 is allowed");
  CHECK(bad({"--listen", ""}) == "64 --listen '': at least one HOST:PORT is needed");
  CHECK(bad({"--http", "0.0.0.0:80"}) ==
        "64 --http 0.0.0.0:80: the status is served on loopback only in this build; use "
        "127.0.0.1:PORT, and a proxy or 'ssh -L' to read it from elsewhere");
  CHECK(good({"--state", "etcd:http://127.0.0.1:2379"}).state == "etcd:http://127.0.0.1:2379");
  CHECK(bad({"--state", "etcd:"}) ==
        "64 --state etcd:: a URL is needed, as in etcd:http://127.0.0.1:2379");
  if (has_sqlite()) {
    CHECK(good({"--state", "sqlite:/var/lib/x"}).state == "sqlite:/var/lib/x");
    CHECK(bad({"--state", "sqlite:"}) ==
          "64 --state sqlite:: a file is needed, as in sqlite:/var/lib/dlaunch/state.db");
  } else {
    CHECK(bad({"--state", "sqlite:/var/lib/x"}) ==
          "64 --state sqlite:/var/lib/x: this build has no SQLite; use memory or etcd:URL,...");
  }
  CHECK(bad({"--state", "disk"}) ==
        "64 --state disk: 'disk' is none of memory, sqlite:PATH, etcd:URL,...");
  CHECK(bad({"--job-max", "3"}) == "64 unknown option --job-max; did you mean --jobs-max?");
  CHECK(bad({"--frobnicate"}) ==
        "64 unknown option --frobnicate; dlaunchd --help lists the options");
  CHECK(bad({"--jobs-max"}) == "64 --jobs-max needs a value: N");
  CHECK(bad({"serve"}) == "64 unexpected argument serve; dlaunchd --help lists the options");
  CHECK(bad({"--bytes-max", "5TB"}) ==
        "64 --bytes-max 5TB: '5TB' is not a whole number (bytes, or with KiB, MiB or GiB behind)");
  for (const char* huge : {"99999999999GiB", "1025GiB", "99999999999999999999999"}) {
    CHECK(bad({"--memory-max", huge}) ==
          "64 --memory-max " + std::string(huge) + ": at most 1024GiB is allowed");
  }
  CHECK(good({"--memory-max", "1024GiB"}).memory_max == std::size_t{1} << 40);
  CHECK(bad({"--bytes-max", "1KiB"}) == "64 --bytes-max 1KiB: at least 1MiB is needed");
  CHECK(bad({"--memory-max", "1KiB"}) == "64 --memory-max 1KiB: at least 1MiB is needed");
  CHECK(bad({"--remember", "soon"}).find("is not a duration") != std::string::npos);
  CHECK(bad({"--log-level", "loud"}) ==
        "64 --log-level loud: 'loud' is none of debug, info, warning, error");
  CHECK(bad({"--config", "nowhere.toml"}) == "78 --config nowhere.toml: cannot be read");
}

TEST_CASE("a wrong file: its line, what, and what to do") {
  CHECK(bad({}, "\n# x\njob-max = 3\n") ==
        "78 d.toml:3: unknown key job-max; did you mean jobs-max?");
  CHECK(bad({}, "jobs-max = \"many\"\n") ==
        "78 d.toml:1: jobs-max = many: 'many' is not a whole number");
  CHECK(bad({}, "http = \"off\"\nlisten = \"127.0.0.1:99999\"\n") ==
        "78 d.toml:2: listen = 127.0.0.1:99999: '127.0.0.1:99999': the port: at most 65535 is "
        "allowed");
  CHECK(bad({}, "jobs-max = 3\nremember = \"1m\"\njobs-max = 4\n") ==
        "78 d.toml:3: jobs-max is given twice; leave one out");
  CHECK(bad({}, "[limits]\njobs-max = 3\n") ==
        "78 d.toml:1: section [limits]: there are no sections");
  CHECK(bad({}, "config = \"other.toml\"\n").starts_with("78 d.toml:1: unknown key config"));
}

TEST_CASE("the mark that some editors put before a file is passed over") {
  CHECK(good({}, "\xef\xbb\xbfjobs-max = 7\n").rules.jobs_max == 7);
}

TEST_CASE("beyond loopback only with a secret") {
  for (const char* near : {"127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1"}) {
    CHECK(!exposure(good({"--listen", near}), false));
  }
  for (const char* far : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.example.org:1"}) {
    const Config config = good({"--listen", "127.0.0.1:1", "--listen", far});
    const auto refusal = exposure(config, false);
    REQUIRE(refusal);
    CHECK(refusal->starts_with("--listen 127.0.0.1:1," + to_string(config.listen.back()) +
                               ": beyond loopback a secret is needed"));
    CHECK(!exposure(config, true));
  }
}

TEST_CASE("an address is given once") {
  const auto doubled = [](const Arguments& arguments) {
    return doubled_address(good(arguments)).value_or("");
  };
  CHECK(doubled({}).empty());
  CHECK(doubled({"--listen", "127.0.0.1:1,127.0.0.1:2,[::1]:1,10.0.0.1:1"}).empty());
  CHECK(doubled({"--listen", "127.0.0.1:0,127.0.0.1:0", "--http", "127.0.0.1:0"}).empty());
  CHECK(doubled({"--listen", "0.0.0.0:1,[::]:1,unix:/a,unix:/b"}).empty());
  CHECK(doubled({"--listen", "unix:/a,127.0.0.1:1,unix:/a"}) ==
        "--listen unix:/a,127.0.0.1:1,unix:/a: unix:/a is given twice; leave one out");
  CHECK(doubled({"--listen", "127.0.0.1:1,localhost:1"})
            .find("127.0.0.1:1 and localhost:1 are one address; leave one out") !=
        std::string::npos);
  CHECK(!doubled({"--listen", "0.0.0.0:1,10.0.0.1:1"}).empty());
  CHECK(!doubled({"--listen", "[::]:1,[fe80::1]:1"}).empty());
  CHECK(doubled({"--http", "localhost:29400"}) ==
        "--http localhost:29400: agents come in at 127.0.0.1:29400; the status needs a port of "
        "its own");
}

TEST_CASE("a unix socket is listened on at a whole path, and needs no secret") {
  const Config config = good({"--listen", "127.0.0.1:1", "--listen", "unix:/run/d.sock",
                              "--socket-mode", "0600", "--socket-group", "gpu"});
  REQUIRE(config.listen.size() == 2);
  CHECK(config.listen[1].path == "/run/d.sock");
  CHECK(to_string(config.listen[1]) == "unix:/run/d.sock");
  CHECK(config.socket_mode == 0600);
  CHECK(config.socket_group == "gpu");
  CHECK(!exposure(config, false));
  CHECK(bad({"--listen", "unix:d.sock"}) ==
        "64 --listen unix:d.sock: 'unix:d.sock': a whole path is needed, as in "
        "unix:/run/dlaunchd/dlaunchd.sock");
  CHECK(bad({"--listen", "unix:/" + std::string(107, 'x')}).find("at most 107 bytes") !=
        std::string::npos);
  for (const char* mode : {"660", "0x60", "0888", "00660", ""}) {
    CHECK(bad({"--socket-mode", mode}).find("is no mode of a file, as in 0660") !=
          std::string::npos);
  }
}

TEST_CASE("what a reload cannot change is named") {
  const Config before = good({});
  CHECK(unchangeable(before, good({"--jobs-max", "1", "--log-level", "error"})).empty());
  CHECK(unchangeable(before, good({"--listen", "127.0.0.1:1", "--http", "off", "--secret-file", "x",
                                   "--keys-max", "5", "--bytes-max", "1GiB"})) ==
        std::vector<std::string>{"listen", "http", "keys-max", "bytes-max"});
}

TEST_CASE("the memory that may be used is that of the cgroup, or of the machine") {
  std::map<std::string, std::string> files;
  const FileReader read = [&](const std::string& path) -> std::optional<std::string> {
    const auto file = files.find(path);
    if (file == files.end()) return std::nullopt;
    return file->second;
  };
  constexpr std::size_t machine = 16000u << 10;
  CHECK(machine_memory() > 64u << 20);
  CHECK(machine_memory() < std::size_t{1} << 50);
  CHECK(usable_memory(read, machine) == 8000u << 10);
  files["/proc/self/cgroup"] = "0::/system.slice/dlaunchd.service\n";
  files["/sys/fs/cgroup/system.slice/dlaunchd.service/memory.max"] = "max\n";
  CHECK(usable_memory(read, machine) == 8000u << 10);
  files["/sys/fs/cgroup/system.slice/memory.max"] = "4096000\n";
  CHECK(usable_memory(read, machine) == 3072000);
  files["/proc/self/cgroup"] = "9:cpu:/x\n4:memory:/jobs/a\n0::/\n";
  files["/sys/fs/cgroup/memory/jobs/a/memory.limit_in_bytes"] = "2048000\n";
  CHECK(usable_memory(read, machine) == 1536000);
}

TEST_CASE("a reload takes over what needs no restart") {
  const Config after =
      reloaded(good({"--listen", "127.0.0.1:1", "--jobs-max", "5"}),
               good({"--listen", "127.0.0.1:2", "--remember", "1h", "--trust-loopback"}));
  CHECK(after.listen == std::vector<ListenAt>{{"127.0.0.1", 1}});
  CHECK(after.rules.jobs_max == 1024);
  CHECK(after.rules.remember == std::chrono::hours(1));
  CHECK(after.trust_loopback);
  // What the start has completed stays.
  Config completed = good({});
  completed.listen.push_back({.host = "", .path = "/run/dlaunchd/dlaunchd.sock"});
  completed.state = "sqlite:/var/lib/dlaunch/state.db";
  const Config again = reloaded(completed, good({"--jobs-max", "5"}));
  CHECK(again.listen == completed.listen);
  CHECK(again.state == completed.state);
  CHECK(again.rules.jobs_max == 5);
  CHECK(unchangeable(after, good({"--listen", "127.0.0.1:2"})) ==
        std::vector<std::string>{"listen"});
}

TEST_CASE("the packaged file shows every key with its default, and --help names each") {
  std::ifstream in(std::string(DLAUNCH_SOURCE_DIR) + "/packaging/dlaunchd.toml");
  std::string active;
  std::vector<std::string> shown;
  for (std::string line; std::getline(in, line);) {
    // "#key = value" is a key; "# text" is a comment.
    if (line.size() > 1 && line[0] == '#' && line[1] != ' ') {
      active += line.substr(1) + "\n";
      shown.push_back(line.substr(1, line.find(' ') - 1));
    }
  }
  const auto help = std::get<EarlyExit>(read({"--help"})).text;
  for (const auto& key : shown) CHECK(help.find("  --" + key + " ") != std::string::npos);
  CHECK(shown.size() == 22);
  const Config as_shown = good({}, active), standard = good({});
  CHECK(unchangeable(standard, as_shown).empty());
  CHECK(as_shown.rules.jobs_max == standard.rules.jobs_max);
  CHECK(as_shown.rules.nodes_per_job_max == standard.rules.nodes_per_job_max);
  CHECK(as_shown.rules.remember == standard.rules.remember);
  CHECK(as_shown.drain_timeout == standard.drain_timeout);
  CHECK(as_shown.log_level == standard.log_level);
}

TEST_CASE("help and version end it well") {
  CHECK(std::get<EarlyExit>(read({"--help"})).code == 0);
  CHECK(std::get<EarlyExit>(read({"--version"})).text.starts_with("dlaunchd "));
  std::string help = std::get<EarlyExit>(read({"-h"})).text;
  for (std::size_t begin = 0; begin < help.size();) {
    const auto end = help.find('\n', begin);
    CHECK(end - begin <= 80);
    begin = end + 1;
  }
}
