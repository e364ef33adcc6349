// Why a call failed, as its program reads it: a snapshot each, and the sentence that is made of it.
#include "collectives/call/core/diagnose.hpp"

#include <algorithm>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using transport::FailureNotice;
using transport::Fingerprint;
using transport::MadeCall;
using transport::Op;

namespace {

Fingerprint sum(std::uint64_t sequence, std::uint64_t count = 8) {
  Fingerprint call;
  call.op = Op::all_reduce;
  call.dtype = DType::f32;
  call.reduce = ReduceOp::sum;
  call.sequence = sequence;
  call.count = count;
  return call;
}

Fingerprint barrier(std::uint64_t sequence) {
  Fingerprint call;
  call.op = Op::barrier;
  call.sequence = sequence;
  return call;
}

Fingerprint message(Op op, std::uint64_t count = 4) {
  Fingerprint call;
  call.op = op;
  call.dtype = DType::f32;
  call.count = count;
  return call;
}

const Group world{"world", 1, 0, {0, 1, 2, 3}};
/// Its rank 0 is rank 2 of the world.
const Group pair{"pair", 9, 0, {2, 1}};

CallError diagnosed(const Fingerprint& call, Ending ending, const Group& group = world,
                    int peer = any_source, int tag = 0) {
  return diagnose({{group, call, 5s, {"/src/train.cpp", 42, ""}, peer, tag}, std::move(ending)});
}

void check(const CallError& error, Errc code, const std::string& sentence,
           const Claim& claim = {}) {
  CHECK(error.errc() == code);
  CHECK(std::string(error.what()) == sentence);
  CHECK(error.claim() == claim);
}

/// `call` is barrier #3 or all_reduce #3 of the world.
void check_differs(const ending::CallDiffers& differs, const std::string& sentence,
                   const Fingerprint& call = sum(3)) {
  const CallError error = diagnosed(call, differs);
  CHECK(error.errc() == Errc::mismatch);
  CHECK(std::string(error.what()) == sentence);
  CHECK(error.claim().fault == Fault::disagreed);
  CHECK(error.claim().ranks == std::vector<int>{differs.rank});
}

FailureNotice notice(Errc code, const std::string& sentence) {
  FailureNotice told;
  told.code = code;
  told.sequence = 3;
  told.sentence = sentence;
  told.from = 1;
  return told;
}

const std::string here = "rank 0 is in all_reduce #3 (sum, f32, 8 elements) [train.cpp:42]";

}  // namespace

TEST_CASE("aborted here") {
  check(diagnosed(barrier(2), ending::Aborted{{"dog.cpp", 7, ""}}), Errc::aborted,
        "barrier #2 [train.cpp:42]: rank 0 aborted the communicator [dog.cpp:7]");
}

TEST_CASE("told by another rank: losses and waits name the one that met them") {
  const Claim lost{.fault = Fault::lost, .ranks = {3}};
  FailureNotice told = notice(Errc::peer_lost, "barrier #2: rank 1 lost rank 3: killed by SIGKILL");
  told.claim = lost;
  const std::string sentence = "told by rank 1: " + told.sentence;
  CallError error = diagnosed(barrier(3), ending::Told{told});
  check(error, Errc::peer_lost, sentence, lost);
  CHECK(error.told());
  // However many ranks it passes, it is the first one that is named.
  told.from = 2;
  told.met_by = 1;
  check(diagnosed(barrier(3), ending::Told{told}), Errc::peer_lost, sentence, lost);
  told.met_by = 2;
  check(diagnosed(barrier(3), ending::Told{told}, pair), Errc::peer_lost,
        "told by rank 0 (rank 2 of the world): " + told.sentence, lost);
  // Another thread of this rank.
  told.met_by = told.from = -1;
  check(diagnosed(barrier(3), ending::Told{told}), Errc::peer_lost, told.sentence, lost);
  check(diagnosed(barrier(3), ending::Told{notice(Errc::mismatch, "they differ")}), Errc::mismatch,
        "they differ");
}

TEST_CASE("where ranks disagree, a rank that hears of it adds what it called") {
  FailureNotice told = notice(Errc::mismatch, "they differ");
  told.claim = {.fault = Fault::disagreed,
                .ranks = {1},
                .communicator = 1,
                .sequence = 3,
                .votes = {{1, 11}, {2, 12}}};
  CHECK(diagnosed(barrier(3), ending::Told{told}).claim() == told.claim);
  Claim mine = told.claim;
  mine.votes.push_back({0, number_of(barrier(3))});
  CHECK(diagnosed(barrier(3), ending::Told{told, barrier(3)}).claim() == mine);
  told.claim = mine;  // It has voted before.
  CHECK(diagnosed(barrier(3), ending::Told{told, barrier(3)}).claim() == mine);
}

TEST_CASE("wrong arguments elsewhere") {
  check(diagnosed(sum(3), ending::WrongArguments{notice(Errc::misuse, "no rank 9")}),
        Errc::mismatch,
        "all_reduce #3 [train.cpp:42] cannot complete, because on another rank its arguments were "
        "wrong: no rank 9");
  check(diagnosed(sum(3), ending::Refused{1}), Errc::mismatch,
        "all_reduce #3 cannot complete, because its arguments were wrong on rank 1 [train.cpp:42]",
        {.fault = Fault::arguments, .ranks = {1}});
}

TEST_CASE("a rank is gone") {
  const auto claim = [](const char* cause) {
    return Claim{.fault = Fault::lost, .ranks = {3}, .doing = cause};
  };
  ending::Lost lost{3, "killed by SIGKILL", "h2"};
  check(diagnosed(sum(3), lost), Errc::peer_lost,
        "all_reduce #3 (sum, f32, 8 elements): rank 0 lost rank 3 on h2: killed by SIGKILL "
        "[train.cpp:42]",
        claim("killed by SIGKILL"));
  check(diagnosed(message(Op::recv), ending::Lost{3, "closed"}, world, 3, 7), Errc::peer_lost,
        "recv from rank 3 (tag 7): rank 0 lost rank 3: closed [train.cpp:42]", claim("closed"));
  lost.wrong = notice(Errc::misuse, "no rank 9");
  check(diagnosed(sum(3), lost), Errc::peer_lost,
        "all_reduce #3 (sum, f32, 8 elements): rank 0 lost rank 3 on h2: killed by SIGKILL "
        "[train.cpp:42], after the arguments of rank 1 were wrong: no rank 9",
        claim("killed by SIGKILL"));
}

TEST_CASE("messages that are not what is expected") {
  const Claim claim{.fault = Fault::disagreed, .ranks = {1}};
  auto sent = make_header(transport::Kind::message, 1, message(Op::send, 1), 4, 7);
  ending::MessageDiffers differs{sent, 1, message(Op::recv)};
  const std::string sentence =
      "rank 0 expects 4 f32 elements in recv from rank 1 (any tag) [train.cpp:42], but rank 1 sent "
      "1 f32 element (tag 7)";
  check(diagnosed(message(Op::recv), differs, world, 1, any_tag), Errc::mismatch, sentence, claim);
  differs.places = {"a.cpp:1", "b.cpp:2"};
  check(diagnosed(message(Op::recv), differs, world, 1, any_tag), Errc::mismatch,
        sentence + " [a.cpp:1] or [b.cpp:2]", claim);
  check(diagnosed(barrier(2),
                  ending::DeviceMessageDiffers{1, message(Op::send, 4), message(Op::recv, 8)}),
        Errc::mismatch,
        "rank 1 sends 4 elements of f32 to rank 0, which receives 8 elements of f32", claim);
  check(diagnosed(message(Op::recv), ending::TooLong{sent, 1, 0}, world, 1, any_tag), Errc::misuse,
        "recv from rank 1 (any tag): rank 1 sent 1 f32 element (tag 7), and the buffer has room "
        "for 0; the message stays until a receive has room for it [train.cpp:42]");
}

TEST_CASE("ranks that wait for each other, none of which is more to blame") {
  const transport::WaitChain ring{transport::WaitChain::Stage::certain,
                                  {{0, 1, 1, 3, "barrier #3"}, {1, 1, 9, 1, "barrier #1 of 'b'"}}};
  check(diagnosed(barrier(3), ending::Deadlock{ring}), Errc::mismatch, to_string(ring),
        {.fault = Fault::disagreed, .ranks = {0, 1}});
}

TEST_CASE("another rank is in another call") {
  ending::CallDiffers differs{1, barrier(3)};
  differs.mine = sum(3);
  differs.made_there = MadeCall{barrier(3), "train.cpp:50"};
  check_differs(differs, here + ", but rank 1 is in barrier #3 [train.cpp:50]");
  const CallError error = diagnosed(sum(3), differs);
  CHECK(error.since() == 3);
  CHECK(error.claim() == Claim{.fault = Fault::disagreed,
                               .ranks = {1},
                               .communicator = 1,
                               .sequence = 3,
                               .votes = {{0, number_of(sum(3))}, {1, number_of(barrier(3))}}});
  // In a communicator of its own.
  CHECK(std::string(diagnosed(sum(3), differs, pair).what()) ==
        "rank 0 (rank 2 of the world) is in all_reduce #3 (sum, f32, 8 elements) [train.cpp:42], "
        "but rank 1 is in barrier #3 [train.cpp:50] of 'pair'");
  differs.wrong = notice(Errc::misuse, "no rank 9");
  check_differs(differs, here +
                             ", but rank 1 is in barrier #3 [train.cpp:50], after the arguments "
                             "of rank 1 were wrong: no rank 9");
  check_differs({2, std::nullopt},
                here + ", but rank 2 is in another call, of which no record is left");
}

TEST_CASE("another rank is ahead: in what it made of this number") {
  ending::CallDiffers differs{1, barrier(5)};
  differs.made_then = MadeCall{barrier(3), "train.cpp:49"};
  differs.made_there = MadeCall{barrier(5), ""};
  check_differs(differs, here + ", but rank 1 made barrier #3 [train.cpp:49]");
  // It made the same, maybe with another argument: what it is in is told.
  differs.made_then->call = sum(3);
  differs.made_then->call.argument = 5;
  check_differs(differs, here + ", but rank 1 is in barrier #5");
}

TEST_CASE("another rank is in a call that is over here") {
  ending::CallDiffers differs{1, barrier(2)};
  differs.mine = sum(2);
  differs.made_here = MadeCall{sum(2), "train.cpp:41"};
  check_differs(differs,
                "rank 0 is in all_reduce #2 (sum, f32, 8 elements) [train.cpp:41], but "
                "rank 1 is in barrier #2");
  differs.theirs->op = Op::all_reduce;
  *differs.theirs = sum(2);
  differs.theirs->argument = 5;
  check_differs(differs,
                "rank 0 is in all_reduce #2 (sum, f32, 8 elements) [train.cpp:41], but "
                "rank 1 is in all_reduce #2 (sum, f32, 8 elements), with another argument");
  // Nothing is remembered of it.
  differs = {1, barrier(2)};
  check_differs(differs,
                "rank 0 made another call #2, of which no record is left, but rank 1 made "
                "barrier #2");
  differs.made_there = MadeCall{barrier(2), "b.cpp:1"};
  check_differs(differs,
                "rank 0 made another call #2, of which no record is left, but rank 1 made "
                "barrier #2 [b.cpp:1]");
}

TEST_CASE("calls that differ in their arguments, sizes or tables of algorithms") {
  const auto there = [](std::uint64_t number) {
    return ", but rank 1 is in all_reduce #" + std::to_string(number) +
           " (sum, f32, 8 elements) [train.cpp:50]";
  };
  Fingerprint theirs = sum(3);
  theirs.argument = 5;
  ending::CallDiffers differs{1, theirs};
  differs.mine = sum(3);
  differs.made_there = MadeCall{theirs, "train.cpp:50"};
  using Arguments = ending::CallDiffers::Arguments;
  differs.arguments = Arguments{"the factor 2", "the factor 3", 0, "a.tbl"};
  check_differs(differs, here + " with the factor 2" + there(3) + " with the factor 3");
  differs.arguments->there = "";
  check_differs(differs, here + " with the factor 2" + there(3) + " with another argument");

  // In the first call the tables are compared, too.
  const std::string first = "rank 0 is in all_reduce #1 (sum, f32, 8 elements) [train.cpp:42]";
  differs.theirs->sequence = differs.mine->sequence = 1;
  differs.arguments = Arguments{"a sum", "a sum", 0, "a.tbl"};
  check_differs(differs,
                first + there(1) + ", by another table of algorithms than the one here, a.tbl",
                sum(1));
  differs.arguments->there = "";
  check_differs(differs,
                first + there(1) +
                    ", with another argument, or by another table of algorithms than the one here, "
                    "a.tbl",
                sum(1));

  ending::CallDiffers sizes{1, sum(3)};
  sizes.sizes = {12, 8};
  check_differs(sizes, here +
                           ", but rank 1 is in all_reduce #3 (sum, f32, 8 elements) and sent 3 "
                           "elements in place of 2: their counts differ");
  sizes.sizes = {4, 6};
  check_differs(sizes, here +
                           ", but rank 1 is in all_reduce #3 (sum, f32, 8 elements) and sent 4 "
                           "bytes in place of 6: their counts differ");
}

TEST_CASE("calls with a root that are over on both ranks") {
  const auto root = [](int rank) {
    Fingerprint call = message(Op::broadcast);
    call.sequence = 2;
    call.root = rank;
    return call;
  };
  ending::WindowDiffers differs{1, {{2, 21}, {2, 22}}, MadeCall{root(0), "a.cpp:1"}, std::nullopt};
  const CallError error = diagnosed(barrier(64), differs);
  check(
      error, Errc::mismatch,
      "rank 0 made broadcast #2 (f32, 4 elements, root 0) [a.cpp:1], but rank 1 made another call "
      "#2, of which no record is left",
      {.fault = Fault::disagreed,
       .ranks = {1},
       .communicator = 1,
       .sequence = 2,
       .votes = {{0, 21}, {1, 22}}});
  CHECK(error.since() == 2);
}

TEST_CASE("the deadline has passed: what each absent rank does, by the best that is known of it") {
  const auto waited = [](const std::string& absent) {
    return "barrier #3: rank 0 waited 5 s; absent: " + absent + " [train.cpp:42]";
  };
  const auto check_absent = [&](const std::vector<ending::Sight>& ranks, const std::string& text) {
    ending::TimedOut late;
    late.ranks = ranks;
    late.recorded_as = 77;
    const CallError error = diagnosed(barrier(3), late);
    CHECK(error.errc() == Errc::timeout);
    CHECK(std::string(error.what()) == waited(text));
    CHECK(error.claim().fault == Fault::absent);
    CHECK(error.claim().ranks.front() == ranks.front().rank);
  };
  ending::Sight rank{.rank = 1};
  check_absent({rank}, "rank 1 (never heard of)");
  rank.last_heard = sum(2);
  check_absent({rank}, "rank 1 (last heard of in all_reduce #2)");
  rank.seen = SeenDoing{"in no call for 5 s"};
  check_absent({rank}, "rank 1 (in no call for 5 s)");
  rank.recorded = SeenDoing{"stopped by a signal, in no call for 2 s"};
  check_absent({rank}, "rank 1 (stopped by a signal, in no call for 2 s)");
  rank.lacks_communicator = true;
  check_absent({rank},
               "rank 1 (stopped by a signal, in no call for 2 s; it has not made this "
               "communicator: do all ranks make their communicators in the same order?)");
  rank.lost = "killed by SIGKILL";
  check_absent({rank}, "rank 1 (killed by SIGKILL)");
  rank.unreceived = make_header(transport::Kind::message, 1, message(Op::send), 64);
  check_absent({rank}, "rank 1 (is in send of 64 bytes to rank 0, which does not receive them)");
  rank.answer = transport::Doing{
      .communicator = 9, .group = "pair", .call = barrier(2), .waits_for = 0, .waits_for_world = 2};
  check_absent({rank},
               "rank 1 (is in barrier #2 of 'pair', waiting for rank 0 (rank 2 of the world))");
  rank.answer->on_stream = true;
  check_absent({rank, {.rank = 2}},
               "rank 1 (is in barrier #2, which is on its stream); rank 2 (never heard of)");
}

TEST_CASE("the deadline of a message: another one that has come, and messages to oneself") {
  ending::TimedOut late;
  const auto sentence = [&](Op op, int peer) {
    return std::string(diagnosed(message(op), late, world, peer, 5).what());
  };
  CHECK(sentence(Op::send, 0) ==
        "send to rank 0 (tag 5): rank 0 waited 5 s; the message is to itself, and it has no "
        "receive under way that takes it [train.cpp:42]");
  CHECK(sentence(Op::recv, 0) ==
        "recv from rank 0 (tag 5): rank 0 waited 5 s; the message is from itself, and it has not "
        "sent it [train.cpp:42]");
  late.ranks = {{.rank = 1}};
  late.unwanted =
      ending::Unwanted{1, make_header(transport::Kind::message, 1, message(Op::send), 16, 4)};
  CHECK(sentence(Op::recv, 1) ==
        "recv from rank 1 (tag 5): rank 0 waited 5 s; absent: rank 1 (never heard of); another "
        "message has come: 4 f32 elements from rank 1 (tag 4) [train.cpp:42]");
  ending::Lost lost{1, "closed"};
  lost.unwanted = late.unwanted;
  CHECK(std::string(diagnosed(message(Op::recv), lost, world, 1, 5).what()) ==
        "recv from rank 1 (tag 5): rank 0 lost rank 1: closed; another message has come: 4 f32 "
        "elements from rank 1 (tag 4) [train.cpp:42]");
  const CallContext named{world, message(Op::recv), 5s, {"", 0, ""}, 1, 5, "recv_up_to"};
  CHECK(named.label() == "recv_up_to from rank 1 (tag 5)");
}

TEST_CASE("a rank that is in the call is not absent from it") {
  ending::TimedOut late;
  late.recorded_as = 77;
  const auto sentence = [&] { return std::string(diagnosed(barrier(3), late).what()); };
  // It says so, or it is further on.
  ending::Sight come{.rank = 1};
  come.answer = transport::Doing{.communicator = 1, .group = "world", .call = barrier(3)};
  late.ranks = {come};
  CHECK(sentence() == "barrier #3: rank 0 waited 5 s; nothing came [train.cpp:42]");
  late.whom = 1;
  CHECK(sentence() ==
        "barrier #3: rank 0 waited 5 s for data of rank 1; all ranks are in the call, "
        "but it did not end in time [train.cpp:42]");
  late.for_device = true;
  late.shortage = "it cannot accept connections: Too many open files";
  CHECK(sentence() ==
        "barrier #3: rank 0 waited 5 s; all ranks are in the call, but their devices "
        "did not end it in time; of rank 0: it cannot accept connections: Too many "
        "open files [train.cpp:42]");
  // It is only seen there: it is named where nobody else is absent.
  late = {};
  late.recorded_as = 77;
  ending::Sight seen{.rank = 1};
  seen.recorded = SeenDoing{"in barrier #3 for 5 s", 77, 3, static_cast<std::uint8_t>(Op::barrier)};
  late.ranks = {seen};
  CHECK(sentence() ==
        "barrier #3: rank 0 waited 5 s; absent: rank 1 (in barrier #3 for 5 s) [train.cpp:42]");
  late.ranks = {seen, {.rank = 2}};
  CHECK(sentence() ==
        "barrier #3: rank 0 waited 5 s; absent: rank 2 (never heard of) [train.cpp:42]");
  // The record's communicator is another one.
  seen.recorded->communicator = 78;
  late.ranks = {seen};
  CHECK(sentence() ==
        "barrier #3: rank 0 waited 5 s; absent: rank 1 (in barrier #3 for 5 s, of another "
        "communicator: do all ranks make their communicators in the same order?) [train.cpp:42]");
}

TEST_CASE("of many absent ranks sixteen are named") {
  std::vector<int> ranks;
  ending::TimedOut late;
  for (int rank = 0; rank < 40; ++rank) {
    ranks.push_back(rank);
    if (rank > 0) late.ranks.push_back({.rank = rank});
  }
  const CallError error = diagnosed(barrier(3), late, Group{"world", 1, 0, ranks});
  const std::string text = error.what();
  CHECK(text.ends_with("; rank 16 (never heard of); and 23 more [train.cpp:42]"));
  CHECK(error.claim().ranks.size() == Claim::ranks_max);
  CHECK(error.claim().doing == "never heard of");
}
