#include "launcher/request/option_values.hpp"

#include "runtime/base/text/toml.hpp"

#include <csignal>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

template <class T>
std::string wrong(const Read<T>& read) {
  const auto* complaint = std::get_if<Complaint>(&read);
  return complaint == nullptr ? "" : complaint->sentence;
}

}  // namespace

TEST_CASE("integers: whole, bounded, and nothing behind them") {
  CHECK(std::get<long>(read_integer("0", 0, 9)) == 0);
  CHECK(std::get<long>(read_integer("-5", -9, 9)) == -5);
  CHECK(wrong(read_integer("", 0, 9)) == "a whole number is missing");
  CHECK(wrong(read_integer("4x", 0, 9)) == "'4x' is not a whole number");
  CHECK(wrong(read_integer("+4", 0, 9)) == "'+4' is not a whole number");
  CHECK(wrong(read_integer(" 4", 0, 9)) == "' 4' is not a whole number");
  CHECK(wrong(read_integer("0x4", 0, 9)) == "'0x4' is not a whole number");
  CHECK(wrong(read_integer("1.5", 0, 9)) == "'1.5' is not a whole number");
  CHECK(wrong(read_integer("-1", 0, 9)) == "at least 0 is needed");
  CHECK(wrong(read_integer("10", 0, 9)) == "at most 9 is allowed");
  CHECK(wrong(read_integer("99999999999999999999", 0, 9)) == "at most 9 is allowed");
  CHECK(wrong(read_integer("-99999999999999999999", 0, 9)) == "at least 0 is needed");
}

TEST_CASE("durations") {
  using std::chrono::milliseconds;
  CHECK(parse_duration("500ms") == milliseconds(500));
  CHECK(parse_duration("30") == milliseconds(30'000));
  CHECK(parse_duration("30s") == milliseconds(30'000));
  CHECK(parse_duration("0.1") == milliseconds(100));
  CHECK(parse_duration("2m") == milliseconds(120'000));
  CHECK(parse_duration("1h") == milliseconds(3'600'000));
  CHECK(parse_duration("0") == milliseconds(0));
  for (const auto text : {"", "-1", "ms", "s", "1d", "1 s", "inf", "nan", "1e3", "1.2.3", "0x10",
                          "99999999999999999999999", "9000h", "+1", "m2"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_duration(text));
  }
}

TEST_CASE("pauses before restarts") {
  using namespace std::chrono_literals;
  CHECK(std::get<RestartPauses>(read_restart_backoff("100ms:1m")) == RestartPauses{100ms, 60s});
  CHECK(std::get<RestartPauses>(read_restart_backoff("2")) == RestartPauses{2s, 10s});
  CHECK(std::get<RestartPauses>(read_restart_backoff("20")) == RestartPauses{20s, 20s});
  CHECK(std::get<RestartPauses>(read_restart_backoff("0")) == RestartPauses{0s, 10s});
  CHECK(wrong(read_restart_backoff("2:1")) == "the first pause is longer than the longest");
  for (const auto text : {"", ":", "1:", ":1", "1:2:3", "x"}) {
    CAPTURE(text);
    CHECK_FALSE(wrong(read_restart_backoff(text)).empty());
  }
}

TEST_CASE("deadlines: so long after the start, or at a time") {
  using namespace std::chrono_literals;
  const auto at = [](std::string_view text) {
    return std::get<DeadlineAsked>(read_deadline(text)).at.value().time_since_epoch();
  };
  CHECK(std::get<DeadlineAsked>(read_deadline("90m")) == DeadlineAsked{.after = 90min});
  CHECK(std::get<DeadlineAsked>(read_deadline("0")) == DeadlineAsked{});
  CHECK(at("@1795442400") == 1795442400s);
  CHECK(at("2026-11-23T14:00:00Z") == 1795442400s);
  CHECK(at("2026-11-23T14:00Z") == 1795442400s);
  CHECK(at("2028-02-29T23:59:59Z") == 1835481599s);
  for (const auto text :
       {"", "@", "@-1", "@0", "@1x", "@9214646400", "2026-11-23", "2262-01-01T00:00Z",
        "1969-12-31T23:59Z", "2026-11-23T14:00", "2026-02-29T14:00Z", "2026-13-01T14:00Z",
        "2026-11-23T24:00Z", "2026-11-23T14:60Z", "2026-11-23 14:00Z", "2026-11-23T14:00+1Z", "-1",
        "tomorrow"}) {
    CAPTURE(text);
    CHECK_FALSE(wrong(read_deadline(text)).empty());
  }
  CHECK(wrong(read_deadline("14:00")) ==
        "'14:00' is neither a duration such as 90m nor a time such as 2026-11-23T14:00Z (UTC) or "
        "@1795442400");
}

TEST_CASE("one signal") {
  CHECK(std::get<int>(read_signal("SIGUSR1")) == SIGUSR1);
  CHECK(wrong(read_signal("SIGUSR1,SIGUSR2")) == "'SIGUSR1,SIGUSR2' is not the name of a signal");
  CHECK(wrong(read_signal("KILL")) == "KILL cannot be handed on");
}

TEST_CASE("streams: for everyone, or by rank with none for the others") {
  const auto all = std::get<StreamsByRank>(read_streams("3"));
  CHECK(all.of(0) == Streams{.out = true, .err = true});
  CHECK(all.of(100) == all.of(0));
  CHECK(std::get<StreamsByRank>(read_streams("0")).of(0) == Streams{});
  const auto some = std::get<StreamsByRank>(read_streams("0:1,3:2"));
  CHECK(some.of(0) == Streams{.out = true, .err = false});
  CHECK(some.of(1) == Streams{});
  CHECK(some.of(3) == Streams{.out = false, .err = true});
  for (const auto text : {"", "4", "-1", "33", "a", "0:", ":1", "0:4", "0:1,", "0:1,2", "-1:1",
                          "9999999:1", "0:1:2"}) {
    CAPTURE(text);
    CHECK(wrong(read_streams(text)).find("is not 0 (none)") != std::string::npos);
  }
  CHECK(wrong(read_streams("1:1,1:2")) == "local rank 1 is listed twice");
}

TEST_CASE("ranks are sorted, and each counts once") {
  CHECK(std::get<std::vector<int>>(read_ranks("2,0,2")) == std::vector<int>{0, 2});
  CHECK(std::get<std::vector<int>>(read_ranks("")).empty());
  CHECK(wrong(read_ranks("0,,1")) == "a whole number is missing");
  CHECK(wrong(read_ranks("0-3")) == "'0-3' is not a whole number");
}

TEST_CASE("signals by name") {
  CHECK(std::get<std::vector<int>>(read_signals("SIGTERM,USR1,SIGTERM")) ==
        std::vector<int>{SIGTERM, SIGUSR1});
  CHECK(std::get<std::vector<int>>(read_signals("SIGRTMIN,SIGRTMIN+2")) ==
        std::vector<int>{SIGRTMIN, SIGRTMIN + 2});
  CHECK(wrong(read_signals("SIGKILL")) == "SIGKILL cannot be handed on");
  CHECK(wrong(read_signals("SIGFOO")) == "'SIGFOO' is not the name of a signal");
  CHECK(wrong(read_signals("SIGRTMIN+99")) == "'SIGRTMIN+99' is not the name of a signal");
  CHECK(wrong(read_signals("")) == "at least one signal is needed");
}

TEST_CASE("nodes and pairs") {
  CHECK(std::get<NodesAsked>(read_nodes("3")).most == 3);
  CHECK(std::get<NodesAsked>(read_nodes("1:4")).least == 1);
  CHECK(wrong(read_nodes("4:1")) == "the minimum is larger than the maximum");
  CHECK(wrong(read_nodes("0")) == "at least 1 is needed");
  CHECK(wrong(read_nodes(":")) == "a whole number is missing");
  const auto pairs = std::get<0>(read_pairs("a=1,b=,c=x=y"));
  CHECK(pairs == std::map<std::string, std::string>{{"a", "1"}, {"b", ""}, {"c", "x=y"}});
  CHECK(wrong(read_pairs("a")) == "'a' is not KEY=VALUE");
  CHECK(wrong(read_pairs("=1")) == "'=1' is not KEY=VALUE");
}

TEST_CASE("an endpoint") {
  const auto host = [](std::string_view text) { return std::get<0>(read_endpoint(text)).host; };
  CHECK(std::get<0>(read_endpoint("[::1]:7")).port == 7);
  CHECK_FALSE(std::get<0>(read_endpoint("::1")).port);
  CHECK(host("head") == "head");
  CHECK(host("head:29400") == "head");
  CHECK(host("[::1]:0") == "::1");
  CHECK(host("::1") == "::1");
  CHECK(wrong(read_endpoint(":29400")) == "the host is missing");
  CHECK(wrong(read_endpoint("head:")) == "the port: a whole number is missing");
  CHECK(wrong(read_endpoint("head:70000")) == "the port: at most 65535 is allowed");
  CHECK(wrong(read_endpoint("[::1")) == "the closing ] is missing");
  CHECK(host("fe80::1%eth0") == "fe80::1%eth0");
  CHECK(host("pod-0.set_a.svc:7") == "pod-0.set_a.svc");
  CHECK(wrong(read_endpoint("tcp://head:7/x")) ==
        "'tcp://head:7/x' is a URL; HOST:PORT is wanted, as in head:7");
  CHECK(wrong(read_endpoint("head:7:8")) == "'head:7:8' is neither a host's name nor an address");
  CHECK(wrong(read_endpoint("head/x:7")) == "there is no host 'head/x': a name has no '/'");
  CHECK(wrong(read_endpoint("two words")) == "there is no host 'two words': a name has no ' '");
  CHECK(wrong(read_endpoint(std::string(254, 'a'))) == "a host's name has at most 253 characters");
  CHECK(is_loopback_name("127.0.0.1"));
  CHECK(is_loopback_name("localhost"));
  CHECK_FALSE(is_loopback_name("127.example.org"));
  CHECK_FALSE(is_loopback_name("localhost.example.org"));
}

TEST_CASE("how far apart two names are") {
  CHECK(edit_distance("tee", "tee") == 0);
  CHECK(edit_distance("", "tee") == 3);
  CHECK(edit_distance("nnodse", "nnodes") == 1);
  CHECK(edit_distance("nproc-per-nod", "nproc-per-node") == 1);
  constexpr std::string_view known[] = {"join_timeout", "rank", "tee"};
  CHECK(nearest_word("join_timout", known) == "join_timeout");
  CHECK(nearest_word("join-timeout", known) == "join_timeout");
  CHECK(nearest_word("rank", known) == "rank");
  CHECK(nearest_word("rang", known) == "rank");
  CHECK(nearest_word("tea", known).empty());
  CHECK(nearest_word("something_else", known).empty());
}

TEST_CASE("words: commas part them, two stand for one, empty ones are dropped") {
  const auto words = [](std::string_view text) {
    return std::get<std::vector<std::string>>(read_words(text));
  };
  using Words = std::vector<std::string>;
  CHECK(words("apple") == Words{"apple"});
  CHECK(words("apple,an orange") == Words{"apple", "an orange"});
  CHECK(words("a,,b,c") == Words{"a,b", "c"});
  CHECK(words("a,,,b") == Words{"a,", "b"});
  CHECK(words(",,,,") == Words{",,"});
  CHECK(words("a,") == Words{"a"});
  CHECK(words("").empty());
  std::string many;
  for (int i = 0; i < 1025; ++i) many += "w,";
  CHECK(std::holds_alternative<Complaint>(read_words(many)));
}

TEST_CASE("where the agent's health is told") {
  const auto read = [](std::string_view text) { return std::get<HealthAt>(read_health_at(text)); };
  CHECK(read("8080") == HealthAt{"127.0.0.1", 8080});
  CHECK(read("0") == HealthAt{"127.0.0.1", 0});
  CHECK(read("0.0.0.0:8080") == HealthAt{"0.0.0.0", 8080});
  CHECK(read("[::]:1") == HealthAt{"::", 1});
  CHECK(wrong(read_health_at("here")) == "'here' is neither a port nor HOST:PORT");
  CHECK(wrong(read_health_at("70000")) == "at most 65535 is allowed");
}

TEST_CASE("TOML: strings, words, arrays, comments, each with its line") {
  const auto read =
      read_toml("f",
                "\xef\xbb\xbf# all of it\r\na = 1 # one\n\n\"b\"='x # y'\nc_d = [ 1, 'two',\n"
                "  \"th\\\"ree\", # or more\n]\ne = true\nf = 0:1,1:2\ng = []\nh = \"\"");
  REQUIRE(std::holds_alternative<std::vector<TomlItem>>(read));
  std::string text;
  for (const auto& [key, value, where] : std::get<0>(read)) {
    text += where + " " + key + "=" + value + "\n";
  }
  CHECK(text ==
        "f:2 a=1\nf:4 b=x # y\nf:5 c_d=1,two,th\"ree\nf:8 e=true\nf:9 f=0:1,1:2\nf:10 g=\n"
        "f:11 h=\n");
}

TEST_CASE("TOML: whole numbers in all its ways") {
  const auto value = [](const std::string& text) {
    const auto read = read_toml("f", "a = " + text);
    REQUIRE(std::holds_alternative<std::vector<TomlItem>>(read));
    return std::get<0>(read).at(0).value;
  };
  CHECK(value("0x1F") == "31");
  CHECK(value("0xdead_BEEF # hex") == "3735928559");
  CHECK(value("0o17") == "15");
  CHECK(value("0b101") == "5");
  CHECK(value("1_000") == "1000");
  CHECK(value("+5") == "5");
  CHECK(value("-1_0") == "-10");
  CHECK(value("[0x10, 'two', 1_0]") == "16,two,10");
  // What is none stays for its reader, as what is quoted does.
  for (const char* text : {"0660", "1__0", "_1", "1_", "0x", "0xg", "+0x1", "1:4", "4GiB", "1.5",
                           "99999999999999999999", "0x_1", "-", "_"}) {
    CHECK(value(text) == text);
  }
  CHECK(value("\"0x10\"") == "0x10");
}

TEST_CASE("TOML that is none is refused with its line") {
  const auto refusal = [](std::string_view text) { return wrong(read_toml("f", text)); };
  CHECK(refusal("a = 1\nb") == "f:2: b: KEY = VALUE is expected");
  CHECK(refusal("= 1") == "f:1: : KEY = VALUE is expected");
  CHECK(refusal("a = # none\n") == "f:1: the value is missing");
  CHECK(refusal("a = 'x\nb = 1") == "f:1: the closing ' is missing");
  CHECK(refusal("a = \"x\\") ==
        "f:1: a \\ in double quotes is written \\\\; in single quotes it "
        "stands for itself");
  CHECK(refusal("a = [1,\n2") == "f:1: the closing ] is missing");
  CHECK(refusal("a = ['1' '2']") == "f:1: a , or ] is missing in the array");
  CHECK(refusal("a = 'x' y # z") == "f:1: behind the value of a stands y # z");
  CHECK(refusal("\n[s]\na = 1") == "f:2: section [s]: there are no sections");
}
