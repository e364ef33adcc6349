// dlaunch ctl: an operator looks at a daemon's jobs and acts on them, and real nodes follow.
#include "launcher/report/daemon_jobs.hpp"
#include "launcher/subcommands/daemon_http.hpp"
#include "tests/process/subcommands/operated.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/free_port.hpp"
#include "tests/support/secret_file.hpp"

#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
using testing::contains;

TEST_CASE("a job is shown, drained and stopped, and its nodes say by whom") {
  OperatedDaemon cluster;
  const std::string mark = unique_token();
  const auto line = [&](const std::string& id) {
    return cluster.daemon.line("my-job", {"--nnodes", "1:3", "--node-id", id},
                               {victim(), "wait", mark});
  };
  CHECK(cluster.ctl({"jobs"}).out == "job  state  epoch  attempt  nodes  ranks  standing\n");
  Job a(line("a"), Job::Environment{}), b(line("b"), Job::Environment{}),
      c(line("c"), Job::Environment{});
  for (Job* job : {&a, &b, &c}) REQUIRE(job->saw("READY"));

  CHECK(cluster.ctl({"drain", "my-job", "--reason", "maintenance"}).out ==
        "no node is let in, and no epoch begins after epoch 1\n");
  REQUIRE(
      a.saw("the job is being drained by operator 'ada': maintenance; it goes on to the end of "
            "epoch 1"));
  Job late(line("d"), Job::Environment{});
  CHECK(late.wait().code == 69);
  CHECK(contains(late.err(),
                 "the job 'my-job' is being drained by operator 'ada': maintenance: no "
                 "node is let in"));
  const auto stopped = cluster.ctl({"stop", "my-job", "--reason", "moved"});
  CHECK(stopped.code == 0);
  CHECK(stopped.out == "the job ends with exit code 143\n");
  for (Job* job : {&a, &b, &c}) {
    CHECK(job->wait().code == 143);
    CHECK(contains(job->err(), "the job ends: stopped by operator 'ada': moved"));
  }
  CHECK(all_gone(mark));
  const auto again = cluster.ctl({"stop", "my-job"});
  CHECK(again.code == 1);
  CHECK(again.err == "dlaunch ctl: the job has ended with exit code 143\n");
  CHECK(cluster.ctl({"remove", "my-job"}).code == 0);
  CHECK(cluster.ctl({"job", "my-job"}).err ==
        "dlaunch ctl: there is no such job; /api/v1/jobs lists them\n");
}

TEST_CASE("a node is evicted: its workers end, and the others go on without it") {
  OperatedDaemon cluster;
  const std::string mark = unique_token();
  const auto line = [&](const std::string& id) {
    return cluster.daemon.line("j", {"--nnodes", "1:2", "--node-id", id}, {victim(), "wait", mark});
  };
  Job a(line("a"), Job::Environment{}), b(line("b"), Job::Environment{});
  for (Job* job : {&a, &b}) REQUIRE(job->saw("READY"));
  CHECK(cluster.ctl({"evict", "j", "x"}).err == "dlaunch ctl: the job has no node 'x' now\n");
  CHECK(cluster.ctl({"evict", "j", "b", "--reason", "bad memory"}).out == "it counts as lost\n");
  CHECK(b.wait().code == 79);
  CHECK(contains(b.err(), "this node was evicted by operator 'ada': bad memory"));
  REQUIRE(a.saw("READY", 2));
  CHECK(contains(a.err(), "node b is lost: evicted by operator 'ada': bad memory"));
  CHECK(cluster.ctl({"remove", "j"}).out ==
        "the job ends with exit code 143, and nothing is kept of it\n");
  CHECK(a.wait().code == 143);
  CHECK(all_gone(mark));
}

TEST_CASE("a daemon is drained and resumed") {
  OperatedDaemon cluster;
  CHECK(contains(cluster.ctl({"drain"}).out, "no new job is taken until it is resumed"));
  const auto line = cluster.daemon.line(
      "j", {"--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=0"}, {"/bin/true"});
  Job refused(line);
  CHECK(refused.wait().code == 69);
  CHECK(contains(refused.err(), "this rendezvous is being drained and takes no new job"));
  CHECK(cluster.ctl({"resume"}).out == "new jobs are taken again\n");
  Job taken(line);
  CHECK(taken.wait().code == 0);
}

TEST_CASE("what cannot be done is said in a sentence, with a code") {
  OperatedDaemon cluster;
  const auto said = [](Strings words) {
    words.insert(words.begin(), "ctl");
    return OperatedDaemon::run(std::move(words));
  };
  CHECK(said({}).code == 64);
  CHECK(contains(said({}).err, "one word says what to do: jobs, job, stop, drain, resume, remove"));
  CHECK(contains(said({"end", "j"}).err, "'end' is none of these words: jobs"));
  CHECK(contains(said({"stop"}).err, "stop takes a job's id, and no more"));
  CHECK(contains(said({"evict", "j"}).err, "evict takes a job's id and a node's"));
  CHECK(contains(said({"stop", "j"}).err, "stop needs --token-file FILE"));
  CHECK(contains(said({"stop", "j", "--json"}).err,
                 "--json is for jobs and job; stop answers with a sentence"));
  CHECK(contains(said({"jobs", "--endpoint", "x"}).err, "'x' is not HOST:PORT"));
  const auto nobody = said({"jobs", "--endpoint", "127.0.0.1:" + std::to_string(free_port())});
  CHECK(nobody.code == 69);
  CHECK(contains(nobody.err, "refused"));
  // A port that speaks something else.
  CHECK(said({"jobs", "--timeout", "100ms", "--endpoint", cluster.daemon.endpoint()}).code == 69);

  const testing::SecretFile stranger("fedcba9876543210"), two("a b\nc d"), none("");
  const auto denied =
      said({"stop", "j", "--endpoint", cluster.http(), "--token-file", stranger.path()});
  CHECK(denied.code == 77);
  CHECK(denied.err == "dlaunch ctl: this token is no operator's\n");
  for (const auto* file : {&two, &none}) {
    const auto wrong = said({"stop", "j", "--token-file", file->path()});
    CHECK(wrong.code == 64);
    CHECK(contains(wrong.err, "it has one line: TOKEN, or NAME TOKEN"));
  }
  CHECK(cluster.ctl({"stop", "j"}).err == "dlaunch ctl: there is no such job\n");
}

TEST_CASE("the JSON of a daemon as tables, whatever its names are") {
  const std::string job = R"({"job":"a\u001b[2J","state":"running","draining":true,"epoch":2,)"
                          R"("attempt":1,"exit_code":null,"nodes_min":1,"nodes_max":3,)"
                          R"("nodes_present":2,"world_size":16,"standing":"all is well")";
  const auto jobs = launcher::daemon_jobs_text(R"({"jobs":[)" + job + "}]}");
  REQUIRE(jobs);
  CHECK(*jobs ==
        "job    state             epoch  attempt  nodes     ranks  standing\n"
        "a?[2J  running, drained  2      1        2 of 1:3  16     all is well\n");
  const auto one = launcher::daemon_job_text(
      job + R"(,"nodes":[{"id":"a","host":"h","state":"running","node_rank":null,"workers":8,)"
            R"("heartbeat_age_ms":2900}]})");
  REQUIRE(one);
  CHECK(*one ==
        "job a?[2J: running, drained; epoch 2, attempt 1, 2 of 1:3 nodes, 16 ranks\n"
        "all is well\n"
        "node  state    rank  ranks  heard    host\n"
        "a     running  -     8      2 s ago  h\n");
  const auto behind = launcher::daemon_job_text(
      job + R"(,"ranks_behind":9,"behind":[{"ranks":2,"sentence":"ranks 1-2 are\u001b behind"}],)"
            R"("nodes":[]})");
  REQUIRE(behind);
  CHECK(contains(*behind, "all is well\nranks 1-2 are? behind\n7 more ranks are behind\n"));
  for (const auto* text : {"", "{}", "[]", "{\"jobs\":[1]}", "{\"jobs\":[{\"job\":1}]}"}) {
    CHECK_FALSE(launcher::daemon_jobs_text(text));
    CHECK_FALSE(launcher::daemon_job_text(text));
  }
  CHECK(launcher::daemon_jobs_text("{\"jobs\":[]}"));
  CHECK(launcher::percent_encoded("a b/\xff~") == "a%20b%2F%FF~");
}
