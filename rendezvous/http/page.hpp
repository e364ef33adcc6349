#pragma once

#include <string>
#include <utility>

namespace dlaunch::rendezvous {

/// One answer to a GET.
struct Page {
  unsigned code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

inline Page sentence_page(unsigned code, std::string sentence) {
  Page page;
  page.code = code;
  page.body = std::move(sentence) + "\n";
  return page;
}

}  // namespace dlaunch::rendezvous
