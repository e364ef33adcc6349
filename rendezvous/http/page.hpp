#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace dlaunch::rendezvous {

/// The parts of a request that pages use; a header that was not sent is empty.
struct PageRequest {
  std::string_view target;
  std::string_view host, origin, accept, last_event_id;
  std::string_view method = "GET";  ///< Or POST or DELETE; a HEAD is a GET here.
  std::string_view authorization = {};
  std::string_view peer = {};  ///< The client's address: "127.0.0.1:51234".
};

/// The endless body of a page, sent for as long as the client reads. Called on the server's thread.
class Feed {
 public:
  virtual ~Feed() = default;
  /// The next bytes, 64 KiB or so at most; empty: nothing until HttpServer::news().
  virtual std::string next() = 0;
};

/// One answer.
struct Page {
  unsigned code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  /// What a browser may load and do for it (Content-Security-Policy).
  std::string policy = "default-src 'none'; frame-ancestors 'none'";
  std::shared_ptr<Feed> feed = nullptr;  ///< In place of a body.
};

inline Page sentence_page(unsigned code, std::string sentence) {
  Page page;
  page.code = code;
  page.body = std::move(sentence) + "\n";
  return page;
}

}  // namespace dlaunch::rendezvous
