// A job that is started on other hosts: the lines, and what becomes of their ends.
#include "launcher/cli/read_request.hpp"
#include "launcher/remote/core/host_lines.hpp"
#include "launcher/remote/core/starter_core.hpp"
#include "launcher/request/option_values.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using namespace std::chrono_literals;

namespace {

using Strings = std::vector<std::string>;

std::variant<JobSpec, EarlyExit> read(const Strings& arguments, const Strings& environment = {},
                                      const FileReader& files = {}) {
  return read_job(arguments, environment, files, {.ignored_signals = {}, .directory = "/home/me"});
}

JobSpec job_of(const Strings& arguments, const Strings& environment = {},
               const FileReader& files = {}) {
  auto result = read(arguments, environment, files);
  if (const auto* stop = std::get_if<EarlyExit>(&result)) {
    FAIL_CHECK("refused: " << stop->text);
    return {};
  }
  return std::get<JobSpec>(std::move(result));
}

std::string refusal(const Strings& arguments) {
  const auto result = read(arguments);
  const auto* stop = std::get_if<EarlyExit>(&result);
  return stop == nullptr ? "accepted" : stop->text;
}

const remote::Here here{
    .launcher = "/opt/dlaunch", .directory = "/home/me", .hostname = "box", .job = "job-7"};

std::vector<remote::HostStart> starts_of(const Strings& arguments,
                                         const Strings& environment = {}) {
  return remote::plan_starts(job_of(arguments, environment), environment, here);
}

std::string text_of(const Read<std::vector<HostAsked>>& read) {
  if (const auto* complaint = std::get_if<Complaint>(&read)) return complaint->sentence;
  std::string text;
  for (const auto& [name, workers] : std::get<0>(read)) {
    text += name + (workers ? "=" + std::to_string(*workers) : "") + " ";
  }
  return text;
}

}  // namespace

TEST_CASE("hosts: on the line, and in a file") {
  CHECK(text_of(read_hosts("a")) == "a ");
  CHECK(text_of(read_hosts("a:4,me@b:2,.,[::1]:3,[fe80::2]")) == "a=4 me@b=2 . ::1=3 fe80::2 ");
  CHECK(text_of(read_hosts("# ours\na slots=4\r\n\n  b:2\t# two\nc\n")) == "a=4 b=2 c ");
  CHECK(text_of(read_hosts("")) == "no host is named");
  CHECK(text_of(read_hosts("a,,b")) == "a host's name is missing");
  CHECK(text_of(read_hosts(":4")) == "a host's name is missing");
  CHECK(text_of(read_hosts("a:")) == "'a:' lacks a number behind its ':'");
  CHECK(text_of(read_hosts("a:x")) == "'a:x': 'x' is not a whole number");
  CHECK(text_of(read_hosts("a:0")) == "'a:0': at least 1 is needed");
  CHECK(text_of(read_hosts("a max_slots=4")) ==
        "'max_slots=4' behind a host's name is not slots=N");
  CHECK(text_of(read_hosts("-oProxyCommand=x")) == "'-oProxyCommand=x' is no host's name");
  CHECK(text_of(read_hosts("a b")) == "'b' behind a host's name is not slots=N");
  CHECK(text_of(read_hosts("a/b")) == "there is no host 'a/b': a name has no '/'");
}

TEST_CASE("hosts: a deadline that a scheduler tells here is handed on") {
  const auto starts =
      starts_of({"--hosts", "a,b", "p"}, {"SLURM_JOB_ID=7", "SLURM_JOB_END_TIME=1795442410"});
  REQUIRE(starts.size() == 2);
  for (const auto& start : starts) {
    CAPTURE(start.argv.back());
    CHECK(start.argv.back().find("--deadline=@1795442400") != std::string::npos);
    CHECK(start.argv.back().find("--deadline-latest=@1795442400") != std::string::npos);
  }
}

TEST_CASE("hosts: what is refused beside them") {
  CHECK(refusal({"--hosts", "a", "--hostfile", "f", "p"}) ==
        "dlaunch: --hostfile f: cannot be read\n");
  CHECK(refusal({"--hosts", "a:x", "p"}) ==
        "dlaunch: --hosts a:x: 'a:x': 'x' is not a whole "
        "number\n");
  CHECK(refusal({"--hosts=a", "--standalone", "p"}) ==
        "dlaunch: --standalone: it is one node, and hosts are named (--hosts)\n");
  CHECK(refusal({"--hosts=a", "--spares=1", "p"}) ==
        "dlaunch: --spares 1: each host that is named has a place in the job (--hosts)\n");
  CHECK(refusal({"--hosts=a", "--node-id=n", "p"}) ==
        "dlaunch: --node-id n: each host has a name of its own (--hosts)\n");
  CHECK(refusal({"--hosts=a:2,b", "p", ":", "q"}) ==
        "dlaunch: --hosts a:2,b: with several programs each says by --nproc-per-node how many "
        "workers it has on each host; leave out the numbers\n");
  const FileReader files = [](const std::string&) { return "a slots=2\nb\n"; };
  CHECK(job_of({"--hostfile=f", "p"}, {}, files).hosts ==
        std::vector<HostAsked>{{"a", 2}, {"b", std::nullopt}});
  CHECK(job_of({"--ssh=ssh", "p"}).notes == Strings{"--ssh ssh has no effect: no hosts are "
                                                    "named."});
}

TEST_CASE("hosts: one line for each, with the place and all that was asked for") {
  const Strings environment = {"PET_MAX_RESTARTS=2", "DLAUNCH_TABLE=/t", "HERE=it's",
                               "DLAUNCH_WORKER_JOB=x"};
  const auto starts =
      starts_of({"--hosts=me@a:4,.", "--nproc-per-node=2", "--env", "HERE", "--monitor-interval=3",
                 "--log-dir", "logs", "./train", "-x", "\\:"},
                environment);
  REQUIRE(starts.size() == 2);
  CHECK(starts[0].host == "me@a");
  CHECK(starts[1].first_node == 1);
  REQUIRE(starts[0].argv.size() == 6);
  CHECK(Strings(starts[0].argv.begin(), starts[0].argv.end() - 1) ==
        Strings{"ssh", "-T", "-o", "BatchMode=yes", "me@a"});
  const std::string line = starts[0].argv.back();
  CAPTURE(line);
  CHECK(line.starts_with("exec /bin/sh -c 'cd -- \"$1\" 2>/dev/null || "));
  const std::string port = line.substr(line.find("endpoint=a:") + 11, 5);
  CHECK(
      line.ends_with(" me@a /home/me env DLAUNCH_TABLE=/t /opt/dlaunch --max-restarts=2 "
                     "--log-dir=logs --rdzv-id=job-7 --nnodes=2 --node-rank=0 "
                     "--rdzv-endpoint=a:" +
                     port +
                     " --rdzv-role=host --stdin=none --ends-with-stdin --nproc-per-node=4 "
                     "'--env=HERE=it'\\''s' -- ./train -x '\\:'"));
  CHECK(Strings(starts[1].argv.begin(), starts[1].argv.end() - 1) == Strings{"/bin/sh", "-c"});
  CHECK(starts[1].argv.back().find("--node-rank=1 --rdzv-endpoint=a:" + port +
                                   " --rdzv-role=join ") != std::string::npos);
  CHECK(starts[1].argv.back().find(" --nproc-per-node=2 ") != std::string::npos);
}

TEST_CASE("hosts: a place that is given, one host, several programs") {
  const auto met = starts_of({"--hosts=a,b", "--rdzv-endpoint=d:1", "--rdzv-id=x", "p"});
  CHECK(met[1].argv.back().find(" --rdzv-endpoint=d:1 --rdzv-id=x --nnodes=2 --node-rank=1 "
                                "--stdin=none ") != std::string::npos);
  const auto one = starts_of({"--hosts=a:3", "-m", "pkg"});
  CHECK(
      one[0].argv.back().ends_with(" /opt/dlaunch --rdzv-id=job-7 --stdin=none "
                                   "--ends-with-stdin --module --nproc-per-node=3 -- pkg"));
  const auto parts = starts_of({"--hosts=a,b", "p", ":", "--nproc-per-node=gpu", "--cwd=d", "q"});
  CHECK(parts[1].argv.back().ends_with(
      " --nproc-per-node=1 -- p : --nproc-per-node=gpu --cwd=/home/me/d -- q"));
  const auto bench = starts_of({"bench", "--hosts=a,b", "--ops", "all_reduce"});
  CHECK(bench[0].argv.back().find(" /opt/dlaunch bench --rdzv-id=job-7 ") != std::string::npos);
  CHECK(bench[0].argv.back().ends_with(" --nproc-per-node=cpu --ops all_reduce"));
}

TEST_CASE("hosts: a secret stands on no command line") {
  const auto job = job_of({"--hosts=a,b", "--secret-fd=7", "p"});
  auto with_secret = here;
  with_secret.secret = true;
  const std::string line = remote::plan_starts(job, {}, with_secret)[0].argv.back();
  CAPTURE(line);
  CHECK(line.starts_with("exec /bin/sh -c 'IFS= read -r secret || exit; cd "));
  CHECK(line.find("; shift; exec \"$@\" 3<<END\n$secret\nEND\n' a /home/me ") != std::string::npos);
  CHECK(line.find(" --secret-fd=3 ") != std::string::npos);
  CHECK(line.find("--secret-fd=7") == std::string::npos);
  CHECK(remote::chooses_meeting(job));
  CHECK_FALSE(remote::chooses_meeting(job_of({"--hosts=a", "p"})));
  CHECK_FALSE(remote::chooses_meeting(job_of({"--hosts=a,b", "--rdzv-endpoint=d", "p"})));
}

TEST_CASE("hosts: beyond 32 some start others, down to the last") {
  std::string hosts;
  for (int i = 0; i < 100; ++i) hosts += (i == 0 ? "" : ",") + ("h" + std::to_string(i)) + ":2";
  const Strings arguments = {"--hosts=" + hosts, "p"};
  const auto starts = starts_of(arguments);
  CHECK(starts.size() == 32);
  int node = 0;
  for (const auto& start : starts) {
    CHECK(start.first_node == node);
    CHECK(start.host == "h" + std::to_string(node));
    node += static_cast<int>(start.hosts.size());
  }
  CHECK(node == 100);
  const std::string& line = starts[1].argv.back();
  CAPTURE(line);
  CHECK(starts[1].hosts.size() == 3);
  CHECK(line.find("--nnodes=100 --node-rank=3 --rdzv-endpoint=h0:") != std::string::npos);
  CHECK(line.find(" --rdzv-role=host --hosts=.:2,h4:2,h5:2 '--ssh=ssh -T -o BatchMode=yes' "
                  "--ends-with-stdin --nproc-per-node=1 -- p") != std::string::npos);

  // What that line starts in turn.
  const auto below =
      starts_of({"--rdzv-id=job-7", "--nnodes=100", "--node-rank=3", "--rdzv-endpoint=h0:12345",
                 "--rdzv-role=host", "--hosts=.:2,h4:2,h5:2", "--ends-with-stdin", "p"});
  REQUIRE(below.size() == 3);
  CHECK(below[0].argv.front() == "/bin/sh");
  CHECK(below[2].argv.back().find("--rdzv-endpoint=h0:12345 --rdzv-id=job-7 --nnodes=100 "
                                  "--node-rank=5 --rdzv-role=join --stdin=none "
                                  "--ends-with-stdin --nproc-per-node=2 -- p") !=
        std::string::npos);
}

TEST_CASE("hosts: each has a --result of its own, as they may share the folder") {
  const auto result_of = [](const remote::HostStart& start) {
    const std::string& line = start.argv.back();
    const auto at = line.find("--result=");
    return line.substr(at, line.find(' ', at) - at);
  };
  const auto starts = starts_of({"--hosts=a,b", "--result", "r.json", "p"});
  REQUIRE(starts.size() == 2);
  CHECK(result_of(starts[0]) == "--result=r.json");
  CHECK(result_of(starts[1]) == "--result=r.json.1");

  // One that starts others adds nothing itself.
  std::string hosts = "h";
  for (int i = 0; i < 39; ++i) hosts += ",h";
  const auto many = starts_of({"--hosts=" + hosts, "--result", "r", "p"});
  REQUIRE(many.back().hosts.size() == 2);
  CHECK(result_of(many.back()) == "--result=r");
  const auto below = starts_of({"--nnodes=40", "--node-rank=38", "--rdzv-endpoint=h0:12345",
                                "--rdzv-role=host", "--hosts=.,h", "--result=r", "p"});
  REQUIRE(below.size() == 2);
  CHECK(result_of(below[0]) == "--result=r.38");
  CHECK(result_of(below[1]) == "--result=r.39");
}

TEST_CASE("hosts: --dry-run tells who starts whom") {
  const auto job = job_of({"--hosts=a:4,b", "p"});
  const auto text = remote::describe_starts(job, remote::plan_starts(job, {}, here), {});
  CHECK(
      text.starts_with("Dry run: nothing is started.\n\nHosts:\n  node rank 0: a:4\n"
                       "  node rank 1: b\n\nLines:\n  ssh -T -o BatchMode=yes a 'exec /bin/sh"));
  CHECK(text.find("\n  hosts                     a:4,b") != std::string::npos);
}

namespace {

using namespace dlaunch::launcher::remote;

/// The effects of an event, as text.
class Story {
 public:
  explicit Story(int hosts, bool elastic = false) : core_(rules(hosts, elastic)) {}

  std::string operator()(const remote::Event& event, std::chrono::seconds at = 0s) {
    std::string text;
    for (const auto& effect : core_.step(event, Clock::time_point(at))) {
      text +=
          (text.empty() ? "" : "; ") + std::visit([](const auto& e) { return tell(e); }, effect);
    }
    return text;
  }

 private:
  static remote::StarterRules rules(int hosts, bool elastic) {
    remote::StarterRules rules{.hosts = {}, .elastic = elastic, .shutdown_timeout = 30s};
    for (int i = 0; i < hosts; ++i) rules.hosts.push_back(std::string(1, char('a' + i)));
    return rules;
  }
  static std::string tell(const CloseInputs&) { return "close"; }
  static std::string tell(const KillAll&) { return "kill"; }
  static std::string tell(const Say& e) { return "say " + e.sentence; }
  static std::string tell(const ArmTimer& e) {
    return "until " +
           std::to_string(
               std::chrono::duration_cast<std::chrono::seconds>(e.at.time_since_epoch()).count());
  }
  static std::string tell(const Exit& e) { return "exit " + std::to_string(e.code); }

  StarterCore core_;
};

remote::Ended ended(std::size_t start, int code, std::string words = "") {
  return {start, {.code = code}, std::move(words)};
}

}  // namespace

TEST_CASE("starter: all end well") {
  Story story(2);
  CHECK(story(ended(0, 0)).empty());
  CHECK(story(ended(1, 0)) == "exit 0");
  CHECK(story(Stopped{2}).empty());
}

TEST_CASE("starter: a job that failed ends everywhere by itself, or is ended") {
  Story story(3);
  CHECK(story(ended(1, 3)) == "until 5");
  CHECK(story(ended(0, 3), 1s).empty());
  CHECK(story(ended(2, 3), 2s) == "exit 3");
  Story slow(2);
  CHECK(slow(ended(1, 127)) == "until 5");
  CHECK(slow(TimedOut{}, 5s) == "close; until 45");
  CHECK(slow(ended(0, 143), 6s) == "exit 127");
}

TEST_CASE("starter: a host that cannot be reached is named, and the others are stopped") {
  Story story(3);
  CHECK(story(ended(1, 255, "ssh: no route")) ==
        "say host b: ssh exited with 255 (ssh: no route); the others are stopped; close; until 40");
  CHECK(story(ended(0, 255)).empty());
  CHECK(story(TimedOut{}, 40s) ==
        "say what runs on the hosts does not end; no more is waited for; kill");
  CHECK(story({remote::Ended{2, {.signal = 9}, ""}}, 41s) == "exit 69");
  Story missing(1);
  CHECK(missing(NotStarted{0, 127, "there is no program 'x' (--ssh)"}) ==
        "say host a: there is no program 'x' (--ssh); exit 127");
}

TEST_CASE("starter: a signal ends the job, the same again without patience") {
  Story story(2);
  CHECK(story(Stopped{2}, 1s) == "close; until 41");
  CHECK(story(Stopped{2}, 2s) == "kill");
  CHECK(story(Stopped{2}, 3s).empty());
  CHECK(story(ended(0, 143)).empty());
  CHECK(story(ended(1, 0)) == "exit 130");
  Story patient(1);
  CHECK(patient(Stopped{15}, 1s) == "close; until 41");
  CHECK(patient(Stopped{1}, 2s).empty());
  CHECK(patient(Stopped{2}, 3s).empty());
  CHECK(patient(Stopped{1}, 4s).empty());
  CHECK(patient(Stopped{2}, 5s) == "kill");
}

TEST_CASE("starter: an elastic job goes on without a host") {
  Story story(3, true);
  CHECK(story(ended(1, 255)) == "say host b: ssh exited with 255; the others go on");
  CHECK(story(ended(0, 4)).empty());
  CHECK(story(ended(2, 4)) == "exit 4");
  Story late(2, true);
  CHECK(late(ended(0, 0)).empty());
  CHECK(late(ended(1, 255)) == "say host b: ssh exited with 255; exit 0");
  Story none(2, true);
  CHECK(none(ended(0, 255)) == "say host a: ssh exited with 255; the others go on");
  CHECK(none(ended(1, 255)) == "say host b: ssh exited with 255; exit 69");
}
