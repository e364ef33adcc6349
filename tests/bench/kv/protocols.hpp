#pragma once

#include "runtime/store/protocol/wire.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

/// The same few operations in the protocols of several key-value servers, as bytes to send and as a
/// rule for when the answer is complete.
namespace dlaunch::bench {

/// How the end of an answer is found.
enum class Form { frame, resp, byte, number, sized };

/// The bytes to send, the number of answers, and their form.
struct Request {
  std::string bytes;
  int answers = 1;
  Form form = Form::frame;
};

/// The size of the first answer in `input`, 0 if it is incomplete. Throws what a server refuses.
std::size_t answer_size(Form form, std::string_view input);

class Protocol {
 public:
  virtual ~Protocol() = default;
  virtual Request hello() { return {{}, 0, {}}; }
  virtual Request set(std::string_view key, std::string_view value) = 0;
  virtual Request get(std::string_view key) = 0;
  virtual Request add(std::string_view key, std::int64_t delta) = 0;
  virtual Request ping() = 0;
  /// Answered when the key is set; with waits_answer_twice() also at once.
  virtual Request wait(std::string_view key) = 0;
  virtual bool waits_answer_twice() const { return false; }
  virtual Request wake(std::string_view key) { return set(key, "1"); }
  /// Answered when `count` have asked; nullopt where there is no such thing.
  virtual std::optional<Request> barrier(std::string_view, int /*who*/, int /*count*/) {
    return std::nullopt;
  }
  virtual std::optional<Request> all_gather(std::string_view, int /*who*/, int /*count*/,
                                            std::string_view /*blob*/) {
    return std::nullopt;
  }
  /// The number in the answer to `add`.
  virtual std::int64_t number(std::string_view answer) = 0;
};

/// "dlaunch", "redis", or "torch": PyTorch 1.13's protocol.
std::unique_ptr<Protocol> make_protocol(const std::string& name);

}  // namespace dlaunch::bench
