#pragma once

#include <string>

namespace dlaunch::rendezvous {

/// One answer to a GET.
struct Page {
  unsigned code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

}  // namespace dlaunch::rendezvous
