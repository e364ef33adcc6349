#include "tests/bench/kv/protocols.hpp"

#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

namespace dlaunch::bench {
namespace {

class Native : public Protocol {
 public:
  Request hello() override {
    Bytes out;
    wire::encode_preface(out);
    wire::Hello hello;
    hello.session = session_++;  // With a session every change is remembered.
    wire::encode_frame(out, {}, hello);
    return {std::string(as_text(out)), 1, Form::frame};
  }
  Request set(std::string_view key, std::string_view value) override {
    return frame(wire::Set{key, as_bytes(value)});
  }
  Request get(std::string_view key) override { return frame(wire::Get{key}); }
  Request add(std::string_view key, std::int64_t delta) override {
    return frame(wire::Add{key, delta});
  }
  Request ping() override {
    Bytes out;
    wire::encode_frame(out, {0, wire::Type::ping, 0, next_++, 0}, BytesView{});
    return {std::string(as_text(out)), 1, Form::frame};
  }
  Request wait(std::string_view key) override { return frame(wire::Wait{{}, {key}}); }
  std::optional<Request> barrier(std::string_view name, int who, int count) override {
    return frame(wire::Barrier{name, 0, count, {}, {who}});
  }
  std::optional<Request> all_gather(std::string_view name, int who, int count,
                                    std::string_view blob) override {
    return frame(wire::AllGather{name, 0, count, {}, {who}, {as_bytes(blob)}});
  }
  std::int64_t number(std::string_view answer) override {
    std::int64_t value = 0;
    std::memcpy(&value, answer.data() + answer.size() - sizeof value, sizeof value);
    return value;
  }

 private:
  template <class Message>
  Request frame(const Message& message) {
    Bytes out;
    wire::encode_frame(out, {0, {}, 0, next_++, 0}, message);
    return {std::string(as_text(out)), 1, Form::frame};
  }
  std::uint64_t next_ = 1;
  /// Asked once: each opening of a random device leaves a virtual machine.
  std::uint64_t session_ = std::uint64_t{std::random_device{}()} << 32 | 1u;
};

class Redis : public Protocol {
 public:
  Request set(std::string_view key, std::string_view value) override {
    return command({"SET", key, value});
  }
  Request get(std::string_view key) override { return command({"GET", key}); }
  Request add(std::string_view key, std::int64_t delta) override {
    return command({"INCRBY", key, std::to_string(delta)});
  }
  Request ping() override { return command({"PING"}); }
  /// Redis has no waiting for a key; a subscription comes nearest.
  Request wait(std::string_view key) override { return command({"SUBSCRIBE", key}); }
  bool waits_answer_twice() const override { return true; }
  Request wake(std::string_view key) override { return command({"PUBLISH", key, "1"}); }
  std::int64_t number(std::string_view answer) override { return std::atol(answer.data() + 1); }

 private:
  static Request command(const std::vector<std::string_view>& words) {
    std::string bytes = "*" + std::to_string(words.size()) + "\r\n";
    for (const auto word : words) {
      bytes += "$" + std::to_string(word.size()) + "\r\n";
      bytes += word;
      bytes += "\r\n";
    }
    return {std::move(bytes), 1, Form::resp};
  }
};

/// PyTorch 1.13. A set has no answer, so a check of the key goes behind it.
class Torch : public Protocol {
 public:
  Request set(std::string_view key, std::string_view value) override {
    Request request = code(0).text(key).text(value).end(Form::byte);
    request.bytes += code(4).number64(1).text(key).end(Form::byte).bytes;
    return request;
  }
  Request get(std::string_view key) override { return code(2).text(key).end(Form::sized); }
  Request add(std::string_view key, std::int64_t delta) override {
    return code(3).text(key).number64(static_cast<std::uint64_t>(delta)).end(Form::number);
  }
  Request ping() override { return code(6).end(Form::number); }
  Request wait(std::string_view key) override {
    return code(5).number64(1).text(key).end(Form::byte);
  }
  std::int64_t number(std::string_view answer) override {
    std::int64_t value = 0;
    std::memcpy(&value, answer.data(), sizeof value);
    return value;
  }

 private:
  class Builder {
   public:
    explicit Builder(int op) : bytes_(1, static_cast<char>(op)) {}
    Builder& number64(std::uint64_t value) {
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
      return *this;
    }
    Builder& text(std::string_view value) {
      number64(value.size());
      bytes_ += value;
      return *this;
    }
    Request end(Form form) { return {std::move(bytes_), 1, form}; }

   private:
    std::string bytes_;
  };
  static Builder code(int op) { return Builder(op); }
};

std::size_t whole(std::size_t size, std::string_view input) {
  return input.size() < size ? 0 : size;
}

std::size_t frame_size(std::string_view input) {
  const std::size_t preface = input.starts_with("DLCH") ? wire::preface_bytes : 0;
  if (input.size() < preface + wire::header_bytes) return 0;
  const auto header = wire::decode_header(as_bytes(input.substr(preface)));
  if (header.type == wire::Type::failed) {
    throw std::runtime_error("refused: " + std::string(input.substr(preface + wire::header_bytes)));
  }
  return whole(preface + wire::header_bytes + header.length, input);
}

std::size_t resp_size(std::string_view input) {
  const auto end = input.find('\n');
  if (end == std::string_view::npos) return 0;
  if (input[0] == '-') throw std::runtime_error(std::string(input.substr(0, end)));
  std::size_t size = end + 1;
  const long count = std::atol(input.data() + 1);
  if (input[0] == '$' && count >= 0)
    return whole(size + static_cast<std::size_t>(count) + 2, input);
  if (input[0] != '*') return size;
  for (long i = 0; i < count; ++i) {
    const std::size_t part = resp_size(input.substr(size));
    if (part == 0) return 0;
    size += part;
  }
  return size;
}

std::size_t sized_size(std::string_view input) {
  std::uint64_t length = 0;
  if (input.size() < sizeof length) return 0;
  std::memcpy(&length, input.data(), sizeof length);
  return whole(sizeof length + length, input);
}

}  // namespace

std::size_t answer_size(Form form, std::string_view input) {
  switch (form) {
    case Form::frame:
      return frame_size(input);
    case Form::resp:
      return resp_size(input);
    case Form::byte:
      return whole(1, input);
    case Form::number:
      return whole(sizeof(std::int64_t), input);
    case Form::sized:
      return sized_size(input);
  }
  return 0;  // Not reached: the switch is complete.
}

std::unique_ptr<Protocol> make_protocol(const std::string& name) {
  if (name == "dlaunch") return std::make_unique<Native>();
  if (name == "redis") return std::make_unique<Redis>();
  if (name == "torch") return std::make_unique<Torch>();
  throw std::runtime_error("no protocol is called " + name);
}

}  // namespace dlaunch::bench
