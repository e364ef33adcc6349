// dlaunchd's state file: who may have it, when the disk is full or fails, and the commands for it.
#include "runtime/base/exit_code.hpp"
#include "tests/process/nodes/durable_node.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/skipped.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/mount.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
namespace request = dlaunch::store::request;
using testing::contains;

TEST_CASE("two daemons do not share a file, and a damaged one is refused") {
  const Kept kept;
  const auto refused = [&](int code) {
    Job second({"--listen", "127.0.0.1:0", "--http", "off", "--state", "sqlite:" + kept.path}, {},
               Daemon::path());
    CHECK(second.wait().code == code);
    return second.err();
  };
  {
    const Daemon first(kept.options);
    CHECK(contains(refused(exit_code::unreachable),
                   "is in use by another process, such as a dlaunchd that runs"));
  }
  std::fstream(kept.path, std::ios::in | std::ios::out) << "no database";
  CHECK(contains(refused(exit_code::configuration), "'" + kept.path + "' is damaged"));
}

TEST_CASE("a state file's folder has to be there at the start") {
  const auto says = [](std::vector<std::string> arguments, int code) {
    Job daemon(arguments, {}, Daemon::path());
    CHECK(daemon.wait().code == code);
    return daemon.out() + daemon.err();
  };
  CHECK(says({"--check", "--state", "sqlite:/nonexistent/x.db"}, 0) ==
        "dlaunchd: the configuration is good\n");
  const std::string wrong =
      "dlaunchd: --state sqlite:/nonexistent/x.db: there is no folder '/nonexistent'\n";
  CHECK(says({"--state", "sqlite:/nonexistent/x.db"}, exit_code::configuration) == wrong);
}

namespace {

/// The only node of a job, and what it has been answered.
struct Writer {
  explicit Writer(const Daemon& daemon) {
    gate.open(address_of(daemon));
    node = std::make_unique<DurableNode>(gate, "j", 7, test::node("n", 1));
  }
  std::string set(std::size_t bytes) {
    const Bytes value(bytes, std::byte{'v'});
    std::string why = node->refusal(request::Set{"k" + std::to_string(count), value});
    if (why.empty()) ++count;
    return why;
  }
  void check_all(std::size_t bytes) {
    for (int i = 0; i < count; ++i) {
      CHECK(node->ask<wire::Found>(request::Get{"k" + std::to_string(i)}).value.size() == bytes);
    }
  }
  Gate gate;
  std::unique_ptr<DurableNode> node;
  int count = 0;
};

/// A small file system in memory.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& size) {
    mounted_ = ::mount("tmpfs", path().c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::string path() const { return folder_.path().string(); }

 private:
  testing::TemporaryFolder folder_;
  bool mounted_ = false;
};

}  // namespace

TEST_CASE("where files may not be large enough a daemon does not start") {
  const Kept kept;
  Job daemon({"-c", "ulimit -f 100; exec " + Daemon::path() +
                        " --listen 127.0.0.1:0 --http off --state sqlite:" + kept.path},
             {}, "/bin/sh");
  CHECK(daemon.wait().code == exit_code::configuration);
  CHECK_MESSAGE(contains(daemon.err(), "the state file '" + kept.path +
                                           "' cannot be kept: files may have no more than 51200 "
                                           "bytes here (ulimit -f)"),
                daemon.err());
}

TEST_CASE("a state file that others may read is told of") {
  const Kept kept;
  { const Daemon daemon(kept.options); }
  std::filesystem::permissions(kept.path, std::filesystem::perms(0644));
  Daemon daemon(kept.options);
  CHECK(contains(daemon.job().err(),
                 "warning: others than its owner have access to the state file '" + kept.path +
                     "' (mode 0644), which holds what jobs keep: chmod 600"));
}

TEST_CASE("a state file that was made is told of, since another may have been lost") {
  const Kept kept;
  const std::string told =
      "the state file '" + kept.path + "' was made: there is nothing in it from before this start";
  const auto tells = [&] {
    Job daemon({"--listen", "127.0.0.1:0", "--http", "off", "--state", "sqlite:" + kept.path}, {},
               Daemon::path());
    REQUIRE(daemon.saw(" fds="));
    daemon.send(SIGTERM);
    CHECK(daemon.wait().code == 0);
    return contains(daemon.err(), told);
  };
  CHECK(tells());
  CHECK_FALSE(tells());
  std::filesystem::resize_file(kept.path, 0);
  CHECK(tells());
}

TEST_CASE("on a full disk changes are refused, and nothing else") {
  const SmallDisk disk("96m");
  if (!disk.mounted()) return testing::skipped("a small disk takes root: mount");
  Daemon daemon({"--state", "sqlite:" + disk.path() + "/state.db"});
  Writer writer(daemon);
  constexpr std::size_t size = 1u << 20;
  std::string why;
  for (int i = 0; i < 96 && why.empty(); ++i) why = writer.set(size);
  CHECK(writer.count > 0);
  CHECK_MESSAGE(contains(why, "no space left on device for " + disk.path() + "/state.db"), why);
  REQUIRE(daemon.job().saw("nothing is changed until there is room"));
  // A read, a heartbeat, and what is no change of a key.
  writer.check_all(size);
  CHECK(writer.node->ask<wire::Number>(request::Count{}).value == writer.count);
  CHECK(contains(writer.set(1), "no space left on device"));
  test::AgentPeer other(address_of(daemon), "other", 8);
  other.welcome();
  other.tell(test::node("n", 1));
  CHECK(contains(other.hear<message::Refused>().reason, "no space left on device"));
  SUBCASE("it takes changes again when there is room") {
    const auto deadline = test::soon();
    REQUIRE(::mount("tmpfs", disk.path().c_str(), "tmpfs", MS_REMOUNT, "size=512m") == 0);
    while (!writer.set(size).empty()) REQUIRE(Clock::now() < deadline);
    CHECK(daemon.job().saw("there is room again"));
  }
  SUBCASE("it is killed") {}
  daemon.kill();
  daemon.start();
  writer.gate.open(address_of(daemon));
  writer.check_all(size);
  writer.node->end();
}

TEST_CASE("on a disk that is full a daemon does not start, and is tried again") {
  const SmallDisk disk("64k");
  if (!disk.mounted()) return testing::skipped("a small disk takes root: mount");
  std::ofstream(disk.path() + "/filler") << std::string(1u << 20, 'x');
  Job job({"--listen", "127.0.0.1:0", "--http", "off", "--state",
           "sqlite:" + disk.path() + "/state.db"},
          {}, Daemon::path());
  CHECK(job.wait().code == exit_code::unreachable);
  CHECK_MESSAGE(contains(job.err(), "no space left on device; make room and start again"),
                job.err());
}

TEST_CASE("a sync that fails, or a disk that is read-only now, ends the daemon before it answers") {
  const Kept kept;
  const std::string fails = (kept.folder.path() / "fails").string();
  const char* how = nullptr;
  SUBCASE("a sync") { how = "FAILING_SYNC"; }
  SUBCASE("a write") { how = "READ_ONLY"; }
  Job daemon({"--listen", "127.0.0.1:0", "--http", "off", "--state", "sqlite:" + kept.path},
             {{"LD_PRELOAD", DLAUNCH_BINARY_DIR "/tests/failing_sync.so"}, {how, fails}},
             Daemon::path());
  if (!daemon.saw(" fds=")) return testing::skipped("no library can be preloaded: " + daemon.err());
  const auto at = daemon.err().find("listen=") + 7;
  const auto port = daemon.err().substr(at, daemon.err().find(' ', at) - at);
  test::AgentPeer agent(
      resolve("127.0.0.1", static_cast<std::uint16_t>(std::stoi(port.substr(port.rfind(':') + 1))))
          .at(0),
      "j", 7);
  agent.welcome();
  agent.tell(test::node("n", 1));
  agent.hear<message::Admitted>();
  std::ofstream(fails) << "now";
  agent.ask(1, request::Set{"k", as_bytes("v")});
  CHECK(agent.closed_by_service());
  CHECK(daemon.wait().code == exit_code::state_lost);
  CHECK(contains(daemon.err(), "the state file '" + kept.path + "' cannot be written: "));
  CHECK_FALSE(contains(daemon.err(), "no space"));
}

TEST_CASE("on a disk that is read-only a daemon does not start") {
  const SmallDisk disk("96m");
  if (!disk.mounted()) return testing::skipped("a small disk takes root: mount");
  const std::string path = disk.path() + "/state.db";
  const auto become = [&](unsigned long flags) {
    REQUIRE(::mount("tmpfs", disk.path().c_str(), "tmpfs", MS_REMOUNT | flags, "size=96m") == 0);
  };
  const auto refused = [&] {
    become(MS_RDONLY);
    Job job({"--listen", "127.0.0.1:0", "--http", "off", "--state", "sqlite:" + path}, {},
            Daemon::path());
    CHECK(job.wait().code == exit_code::configuration);
    CHECK_MESSAGE(contains(job.err(),
                           "the state file '" + path + "' cannot be opened: Read-only file system"),
                  job.err());
    become(0);
  };
  refused();  // There is no file yet.
  {
    const Daemon daemon({"--state", "sqlite:" + path});
    Writer writer(daemon);
    CHECK(writer.set(5).empty());
    writer.node->end();
  }
  refused();
  const Daemon daemon({"--state", "sqlite:" + path});
}

TEST_CASE("a state file is checked, saved and restored") {
  const Kept kept;
  const std::string saved = (kept.folder.path() / "saved.db").string();
  const std::string again = (kept.folder.path() / "again.db").string();
  const auto says = [](const std::vector<std::string>& arguments, int code) {
    Job command(arguments, {}, Daemon::path());
    CHECK_MESSAGE(command.wait().code == code, command.err());
    return command.out() + command.err();
  };
  const std::string all = ": 1 job, 1 namespace with 3 keys\n";
  std::optional<Daemon> daemon(std::in_place, kept.options);
  Writer writer(*daemon);
  for (int i = 0; i < 3; ++i) CHECK(writer.set(5).empty());
  const auto memory = writer.node->memory();
  for (const auto& arguments : {std::vector<std::string>{"check", kept.path},
                                {"backup", kept.path, saved},
                                {"restore", kept.path, again}}) {
    CHECK(contains(says(arguments, exit_code::unreachable), "is in use by another process"));
  }
  daemon->kill();
  daemon.reset();
  CHECK(says({"check", kept.path}, 0) == "dlaunchd: '" + kept.path + "' is good" + all);
  CHECK(std::filesystem::exists(kept.path + "-wal"));
  std::ofstream(saved + ".part") << "somebody's";
  CHECK(says({"backup", kept.path, saved}, 0) == "dlaunchd: saved in '" + saved + "'" + all);
  CHECK(contains(says({"backup", kept.path, saved}, exit_code::configuration), "is there already"));
  CHECK(std::filesystem::file_size(saved + ".part") == 10);
  CHECK(contains(says({"check", again}, exit_code::configuration), "No such file or directory"));
  const std::string folder = kept.folder.path().string();
  CHECK(contains(says({"check", folder}, exit_code::configuration), "Is a directory"));
  // A limit on the size of files is told of, and kills nobody.
  Job limited({"-c", "ulimit -f 8; exec " + Daemon::path() + " restore " + saved + " " + again}, {},
              "/bin/sh");
  CHECK(limited.wait().code == exit_code::configuration);
  CHECK_MESSAGE(contains(limited.err(), "cannot write '" + again + ".part-"), limited.err());
  CHECK(says({"restore", saved, again}, 0) == "dlaunchd: restored in '" + again + "'" + all);
  CHECK(contains(says({"check"}, exit_code::usage), "a word is missing: dlaunchd check FILE"));
  CHECK(contains(says({"check", kept.path, again}, exit_code::usage), "unexpected argument"));
  CHECK(contains(says({"backup", "--help"}, 0), "Usage: dlaunchd backup FILE TO"));

  Daemon other({"--state", "sqlite:" + again});
  writer.gate.open(address_of(other));
  writer.check_all(5);
  CHECK(writer.node->memory() != memory);
  writer.node->end();
}
