// Point to point: order, tags, anybody, oneself, batches, and messages that do not fit.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <atomic>
#include <functional>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::require;
using testing::run_ranks;

TEST_CASE("send, send, then recv, recv of small messages completes") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    const int other = 1 - comm.rank();
    std::vector<int> out(1000, comm.rank()), in(1000);
    comm.send(out, other);
    comm.recv(in, other);
    require(in == std::vector<int>(1000, other), "the message differs");
  }));
}

TEST_CASE("send against send of large messages is reported as what it is") {
  const auto outcomes = run_ranks(2, [](const World& world) {
    Communicator comm(world);
    std::vector<std::byte> data(64u << 20);
    comm.barrier();  // The first to have its memory would give up before the other begins.
    comm.send(data, 1 - comm.rank(), {.timeout = 1s});
  });
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == Errc::timeout);
    // Either rank may have told it, of the other one.
    const auto tells_of = [&](int sender) {
      return outcome.mentions("rank " + std::to_string(sender) + " (is in send") &&
             outcome.mentions("bytes to rank " + std::to_string(1 - sender) +
                              ", which does not receive them");
    };
    CHECK_MESSAGE((tells_of(0) || tells_of(1)), outcome.text);
  }
}

TEST_CASE("sendrecv exchanges what is too large for either to go first") {
  for (const int size : {1, 2, 3}) {
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      const int n = comm.size(), next = (comm.rank() + 1) % n, before = (comm.rank() + n - 1) % n;
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{4} << 20}) {
        std::vector<int> out(count, comm.rank()), in(count);
        const Received what = comm.sendrecv(out, next, in, before, {.tag = 3});
        require(in == std::vector<int>(count, before), "what came differs");
        require(what == Received{before, 3, DType::i32, count}, "what is said of it differs");
      }
    }));
  }
}

TEST_CASE("large messages go both ways at once in a batch, and with isend") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const int next = (comm.rank() + 1) % 3, before = (comm.rank() + 2) % 3;
    std::vector<int> out(8u << 20, comm.rank()), in(8u << 20);
    comm.batch({Transfer::send(out, next), Transfer::recv(in, before)});
    require(in == std::vector<int>(8u << 20, before), "the batch differs");
    Work sent = comm.isend(out, before);
    comm.recv(in, next);
    sent.wait();
    require(in == std::vector<int>(8u << 20, next), "the message of isend differs");
  }));
}

TEST_CASE("what came together with a message waits for whoever asks for it, and however") {
  testing::Event sent;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    comm.barrier();
    if (comm.rank() == 0) {
      for (int i = 0; i < 5; ++i) comm.send(i, 1, {.tag = i});
      std::vector<int> large(15'000, 5);
      comm.send(large, 1, {.tag = 5});
      return sent.set();
    }
    require(sent.wait(), "nothing was sent");
    const auto take = [&](int from, int tag, int expected) {
      int value = -1;
      const Received what = comm.recv(value, from, {.tag = tag});
      require(value == expected && what.tag == expected, "it is another message");
    };
    take(0, 0, 0);
    take(any_source, any_tag, 1);
    const auto found = comm.probe(0, {.tag = any_tag});
    require(found.tag == 2, "another message was found");
    take(0, 3, 3);
    take(0, 2, 2);
    int value = -1;
    comm.irecv(value, 0, {.tag = 4}).wait();
    require(value == 4, "the message for irecv differs");
    std::vector<int> in(15'000);
    comm.recv(in, 0, {.tag = 5});
    require(in == std::vector<int>(15'000, 5), "the large message differs");
  }));
}

TEST_CASE("tags choose, and messages of one tag keep their order") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    if (comm.rank() == 0) {
      for (int i = 0; i < 10; ++i) {
        const int value = 100 * (i % 2) + i / 2;
        comm.send(value, 1, {.tag = i % 2});
      }
      return;
    }
    for (const int tag : {1, 0}) {
      for (int i = 0; i < 5; ++i) {
        int value = -1;
        const Received what = comm.recv(value, 0, {.tag = tag});
        require(value == 100 * tag + i, "a message out of order");
        require(what == Received{0, tag, DType::i32, 1}, "what was received is told wrongly");
      }
    }
  }));
}

TEST_CASE("from anybody, with any tag, after a probe") {
  check_all(run_ranks(4, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    if (comm.rank() != 0) {
      const std::vector<int> mine(static_cast<std::size_t>(comm.rank()), comm.rank());
      comm.send(mine, 0, {.tag = 10 * comm.rank()});
      return;
    }
    std::vector<bool> seen(4);
    for (int i = 0; i < 3; ++i) {
      const Received next = comm.probe(any_source, {.tag = any_tag});
      require(next.count == static_cast<std::size_t>(next.source), "probe tells another count");
      std::vector<int> got(next.count);
      const Received what = comm.recv(got, any_source, {.tag = any_tag});
      require(what == next, "recv takes another message than probe told of");
      require(what.tag == 10 * what.source, "another tag");
      require(got == std::vector<int>(got.size(), what.source), "another message");
      seen[static_cast<std::size_t>(what.source)] = true;
    }
    require(seen == std::vector<bool>{false, true, true, true}, "somebody was not heard");
    require(!comm.try_probe(any_source, {.tag = any_tag}), "a message from nowhere");
  }));
}

TEST_CASE(
    "a server receives from anybody in a group with numbers of its own, each client's in order") {
  check_all(run_ranks(4, [](const World& world) {
    Communicator all(world);
    all.set_timeout(60s);
    Communicator comm = *all.group({3, 1, 0, 2});
    comm.set_timeout(60s);
    constexpr int turns = 300;
    if (comm.rank() != 0) {
      for (int turn = 0; turn < turns; ++turn) {
        const std::array mine{comm.rank(), turn};
        if (turn % 50 == 49) {
          comm.ssend(mine, 0, {.tag = comm.rank()});
        } else {
          comm.send(mine, 0, {.tag = comm.rank()});
        }
      }
      return comm.barrier();
    }
    std::array<int, 4> heard{};
    const auto hear = [&](const Received& what, const std::array<int, 2>& got) {
      require(what.source == got[0] && what.tag == got[0], "another source or tag");
      require(got[1] == heard[static_cast<std::size_t>(got[0])]++, "out of order");
    };
    for (int i = 0; i < 3 * turns / 5; ++i) {
      // A receive that was posted first has the first message of those that fit both.
      std::array<std::array<int, 2>, 5> got{};
      Work first = comm.irecv(got[0], any_source, {.tag = any_tag});
      const Received second = comm.recv(got[1], any_source, {.tag = any_tag});
      first.wait();
      hear(*first.received(), got[0]);
      hear(second, got[1]);
      for (std::size_t k = 2; k < got.size(); ++k) {
        hear(comm.recv(got[k], any_source, {.tag = any_tag}), got[k]);
      }
    }
    require(heard == std::array{0, turns, turns, turns}, "somebody was not heard");
    comm.barrier();
  }));
}

TEST_CASE("to oneself, also in a world of one, and empty messages") {
  for (const int size : {1, 2}) {
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      comm.set_timeout(20s);
      const std::vector<int> out{1, 2, 3};
      std::vector<int> in(3), nothing;
      comm.send(out, comm.rank(), {.tag = 7});
      comm.send(nothing, comm.rank());
      comm.recv(nothing, comm.rank());
      comm.recv(in, comm.rank(), {.tag = 7});
      require(in == out, "the message differs");
      Work early = comm.irecv(in, comm.rank(), {.tag = 8});
      require(!early.test(), "complete before anything was sent");
      const std::vector<int> more{4, 5, 6};
      comm.send(more, comm.rank(), {.tag = 8});
      early.wait();
      require(in == more, "the message of irecv differs");
    }));
  }
}

TEST_CASE("messages and collectives do not disturb each other") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    const int next = (comm.rank() + 1) % 3, before = (comm.rank() + 2) % 3;
    int out = comm.rank(), in = -1;
    Work coming = comm.irecv(in, before, {.tag = 1});
    comm.barrier();
    comm.send(out, next, {.tag = 1});
    int sum = 1;
    comm.all_reduce(sum);
    coming.wait();
    require(in == before && sum == 3, "something differs");
  }));
}

TEST_CASE("a message of another length or type is an error on both sides") {
  for (const bool other_type : {false, true}) {
    std::atomic<int> send_line{0}, recv_line{0};
    const auto outcomes = run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(20s);
      if (comm.rank() == 0) {
        const std::vector<int> out(4), longer(7);
        comm.send(longer, 1, {.tag = 4});
        send_line = __LINE__ + 1;
        comm.send(out, 1, {.tag = 3});
        comm.barrier();
      } else {
        std::vector<int> in(5);
        std::vector<float> reals(4);
        recv_line = __LINE__ + 1;
        comm.recv(other_type ? TensorView(reals) : TensorView(in), 0, {.tag = 3});
      }
    });
    for (const auto& outcome : outcomes) {
      CHECK(outcome.code == Errc::mismatch);
      const auto place = [](int line) {
        return " [message_test.cpp:" + std::to_string(line) + "]";
      };
      CHECK_MESSAGE(
          outcome.text == "rank 1 expects " + std::string(other_type ? "4 f32" : "5 i32") +
                              " elements in recv from rank 0 (tag 3)" + place(recv_line) +
                              ", but rank 0 sent 4 i32 elements (tag 3)" + place(send_line),
          outcome.text);
    }
  }
}

TEST_CASE("wrong peers and tags are refused and break nothing") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    const auto refused = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        if (error.errc() == Errc::misuse) return;
      }
      throw std::runtime_error("not refused");
    };
    int x = 0;
    refused([&] { comm.send(x, 2); });
    refused([&] { comm.send(x, any_source); });
    refused([&] { comm.send(x, 0, {.tag = -1}); });
    refused([&] { comm.recv(x, -2); });
    comm.barrier();
  }));
}

TEST_CASE("a batch with a wrong message is refused before any of it has begun") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    const int other = 1 - comm.rank();
    int out = comm.rank(), in = -1, strange = 0;
    const auto refused = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.errc() == Errc::misuse;
      }
      return false;
    };
    const TensorView nowhere{nullptr, 3, DType::i32};
    for (const Transfer& wrong :
         {Transfer::send(strange, 2), Transfer::recv(strange, -5), Transfer::recv(nowhere, other),
          Transfer::send(strange, other, any_tag), Transfer::send(strange, any_source)}) {
      // Nothing that comes before the wrong one, or after it, is on its way.
      const std::array all{Transfer::recv(in, other), Transfer::send(out, other), wrong,
                           Transfer::send(out, other)};
      require(refused([&] { comm.batch(all); }), "batch");
      require(refused([&] { const auto works = comm.start_batch(all); }), "start_batch");
    }
    require(refused([&] { comm.sendrecv(out, other, in, 2); }), "sendrecv: from");
    require(refused([&] { comm.sendrecv(out, other, nowhere, other); }), "sendrecv: in");
    require(refused([&] { comm.sendrecv(out, any_source, in, other); }), "sendrecv: to");
    comm.barrier();
    require(!comm.try_probe(any_source, {.tag = any_tag}), "something was sent");
    comm.barrier();
    comm.batch({Transfer::recv(in, other), Transfer::send(out, other)});
    require(in == other, "the batch that is right");
    std::array<int, 4> both{};
    const TensorView every_other{both.data(), 2, DType::i32, {}, 2};
    const std::array<int, 2> pair{1, 2};
    comm.batch({Transfer::recv(every_other, any_source, any_tag), Transfer::send(pair, other)});
    require(both == std::array{1, 0, 2, 0}, "a strided receive from anybody");
  }));
}

TEST_CASE("more small messages than are parked wait in the sender") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    constexpr int messages = 40;
    std::vector<int> data(256u << 10);  // 1 MiB each, 40 MiB together.
    if (comm.rank() == 0) {
      for (int i = 0; i < messages; ++i) {
        data[0] = i;
        comm.send(data, 1, {.tag = 1});
      }
      comm.send(data, 1, {.tag = 2});
    } else {
      for (int i = 0; i < messages; ++i) {
        comm.recv(data, 0, {.tag = 1});
        require(data[0] == i, "a message out of order");
      }
      comm.recv(data, 0, {.tag = 2});
    }
    comm.barrier();
  }));
}
