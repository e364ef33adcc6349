#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

/// Requests to etcd and its answers, in the JSON of its gateway. Pure.
namespace dlaunch::rendezvous::etcd {

using Json = nlohmann::json;

/// The failure of a request that was not carried out, or perhaps not. Caught within this folder.
class Failure : public std::runtime_error {
 public:
  enum class Kind {
    unreachable,  ///< No member has answered in time: it may have been carried out, or may yet be.
    no_space,     ///< The members' quota is used up; it was not carried out.
    not_found,
    refused,
  };
  Failure(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

std::string to_base64(std::string_view bytes);
/// Throws Failure for other text.
std::string from_base64(std::string_view text);

/// The first key behind all that begin with `prefix`, which ends with no byte of 255.
std::string end_of(std::string prefix);

// ---- Of transactions ----

Json condition(const std::string& key, const char* target, const char* field,
               const std::string& value);
/// Bound to a lease unless that is 0.
Json put_of(const std::string& key, std::string_view value, std::int64_t lease = 0);
Json range_of(const std::string& key);
/// Erases a key, or all that begin with it.
Json erase_of(const std::string& key, bool all);

// ---- Answers, which leave out what is 0, false or empty. They throw Failure for another form.
// ----

/// The contents of an answer with this HTTP status. An error is thrown as the Failure that it is
/// for the caller.
Json answer_in(unsigned status, std::string_view body);
std::int64_t number_in(const Json& object, const char* field);
std::string bytes_in(const Json& object, const char* field);
bool is_true(const Json& object, const char* field);
/// The pairs of key and value of a range.
const Json& kvs_of(const Json& answer);
/// The pairs of a range that was part of a transaction.
Json kvs_of_response(const Json& answer, std::size_t which);

}  // namespace dlaunch::rendezvous::etcd
