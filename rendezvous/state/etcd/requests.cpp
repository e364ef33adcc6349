#include "rendezvous/state/etcd/requests.hpp"

#include "runtime/base/phrases.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace dlaunch::rendezvous::etcd {
namespace {

constexpr std::string_view base64_digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// gRPC's codes, which the gateway passes on.
enum class Code {
  deadline_exceeded = 4,
  not_found = 5,
  resource_exhausted = 8,
  failed_precondition = 9,
  aborted = 10,
  internal = 13,
  unavailable = 14,
};

/// gRPC's code and the sentence of an answer that is an error. Versions of the gateway have it in
/// "error" or "message", and calls that stream in an object "error", even with status 200.
std::optional<std::pair<std::int64_t, std::string>> complaint_in(const Json& answer) {
  const auto error = answer.find("error");
  const Json& whole = error != answer.end() && error->is_object() ? *error : answer;
  for (const char* field : {"error", "message"}) {
    const auto found = whole.find(field);
    if (found == whole.end() || !found->is_string()) continue;
    const char* code = whole.contains("grpc_code") ? "grpc_code" : "code";
    return std::pair(number_in(whole, code), found->get<std::string>());
  }
  if (error == answer.end()) return std::nullopt;
  return std::pair(std::int64_t{0}, std::string("an error without a message"));
}

/// The kind of failure that an error is for the caller.
Failure::Kind kind_of(unsigned status, std::int64_t code, std::string_view message) {
  const auto has = [&](std::string_view words) {
    return message.find(words) != std::string_view::npos;
  };
  if (has("database space exceeded")) return Failure::Kind::no_space;
  switch (static_cast<Code>(code)) {
    case Code::not_found:
      return Failure::Kind::not_found;
    case Code::deadline_exceeded:
    case Code::aborted:
    case Code::unavailable:
    case Code::internal:
      return Failure::Kind::unreachable;
    case Code::resource_exhausted:
      // Such as "too many requests"; a message that is too long is not tried again.
      return has("larger than max") ? Failure::Kind::refused : Failure::Kind::unreachable;
    case Code::failed_precondition:
      break;
  }
  return status >= 500 ? Failure::Kind::unreachable : Failure::Kind::refused;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const auto group = bytes.substr(at, 3);
    unsigned bits = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < group.size() ? static_cast<unsigned char>(group[i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= group.size() ? base64_digits[bits >> (18 - 6 * i) & 63U] : '=';
    }
  }
  return text;
}

std::string from_base64(std::string_view text) {
  static const std::array<signed char, 256> values = [] {
    std::array<signed char, 256> all{};
    all.fill(-1);
    for (std::size_t i = 0; i < base64_digits.size(); ++i) {
      all[static_cast<unsigned char>(base64_digits[i])] = static_cast<signed char>(i);
    }
    return all;
  }();
  if (text.size() % 4 != 0) throw Failure(Failure::Kind::refused, "a value that is no base64");
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  unsigned bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) throw Failure(Failure::Kind::refused, "a value that is no base64");
    bits = bits << 6 | static_cast<unsigned>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xffU);
  }
  return bytes;
}

std::string end_of(std::string prefix) {
  ++prefix.back();
  return prefix;
}

// Lists are made explicitly: the JSON library may take braces around one element for the element.

Json condition(const std::string& key, const char* target, const char* field,
               const std::string& value) {
  return Json::object(
      {{"key", to_base64(key)}, {"target", target}, {"result", "EQUAL"}, {field, value}});
}

Json put_of(const std::string& key, std::string_view value, std::int64_t lease) {
  Json put = Json::object({{"key", to_base64(key)}, {"value", to_base64(value)}});
  if (lease != 0) put["lease"] = std::to_string(lease);
  return Json::object({{"request_put", std::move(put)}});
}

Json range_of(const std::string& key) {
  return Json::object({{"request_range", Json::object({{"key", to_base64(key)}})}});
}

Json erase_of(const std::string& key, bool all) {
  Json range = Json::object({{"key", to_base64(key)}});
  if (all) range["range_end"] = to_base64(end_of(key));
  return Json::object({{"request_delete_range", std::move(range)}});
}

std::int64_t number_in(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  std::int64_t number = 0;
  const std::string text = found->is_string() ? found->get<std::string>() : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Failure(Failure::Kind::refused,
                  std::string("an answer in which ") + field + " is no number");
  }
  return number;
}

std::string bytes_in(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return {};
  if (!found->is_string()) throw Failure(Failure::Kind::refused, "an answer of another form");
  return from_base64(found->get_ref<const std::string&>());
}

bool is_true(const Json& answer, const char* field) {
  const auto found = answer.find(field);
  return found != answer.end() && *found == true;
}

const Json& kvs_of(const Json& answer) {
  static const Json none = Json::array();
  const auto found = answer.find("kvs");
  return found == answer.end() || !found->is_array() ? none : *found;
}

Json kvs_of_response(const Json& answer, std::size_t which) {
  const auto all = answer.find("responses");
  if (all == answer.end() || !all->is_array() || all->size() <= which) return Json::array();
  const auto range = all->at(which).find("response_range");
  return range == all->at(which).end() ? Json::array() : kvs_of(*range);
}

Json answer_in(unsigned status, std::string_view body) {
  Json answer = Json::parse(body, nullptr, false);
  if (!answer.is_object()) {
    throw Failure(Failure::Kind::unreachable, "an answer that is no JSON");
  }
  const auto wrong = complaint_in(answer);
  if (status == 200 && !wrong) {
    // A call that streams has each message in a "result".
    return answer.contains("result") ? answer.at("result") : answer;
  }
  const auto [code, message] =
      wrong.value_or(std::pair(std::int64_t{0}, "status " + std::to_string(status)));
  throw Failure(kind_of(status, code, message), clipped(message));
}

}  // namespace dlaunch::rendezvous::etcd
