#include "launcher/scheduler/node_list.hpp"

#include <doctest/doctest.h>

namespace dlaunch::launcher {
namespace {

using Names = std::vector<std::string>;

Names names(std::string_view text) {
  auto read = read_node_list(text);
  if (const auto* complaint = std::get_if<Complaint>(&read)) return {"! " + complaint->sentence};
  return std::get<Names>(std::move(read));
}

std::string complaint(std::string_view text) {
  const auto read = read_node_list(text);
  const auto* complaint = std::get_if<Complaint>(&read);
  return complaint == nullptr ? "" : complaint->sentence;
}

}  // namespace

TEST_CASE("a node list as Slurm writes it") {
  CHECK(names("n1") == Names{"n1"});
  CHECK(names("login,n2") == Names{"login", "n2"});
  CHECK(names("node[01-03,07],gpu1") == Names{"node01", "node02", "node03", "node07", "gpu1"});
  CHECK(names("n[3,1]") == Names{"n3", "n1"});
  CHECK(names("n[08-11]") == Names{"n08", "n09", "n10", "n11"});
  CHECK(names("n[9-10]") == Names{"n9", "n10"});
  CHECK(names("r[0-1]n[0-1]") == Names{"r0n0", "r0n1", "r1n0", "r1n1"});
  CHECK(names("c[1-2]-ib,[3-4]") == Names{"c1-ib", "c2-ib", "3", "4"});
}

TEST_CASE("a list that is none is told by a sentence") {
  CHECK(complaint("") == "a name in the list is empty");
  CHECK(complaint("a,,b") == "a name in the list is empty");
  CHECK(complaint("a,") == "a name in the list is empty");
  CHECK(complaint("n[1-3") == "'n[1-3' lacks a closing bracket");
  CHECK(complaint("n[1-3,n4") == "'n[1-3,n4' lacks a closing bracket");
  CHECK(complaint("n[]") == "'' is no range of node numbers");
  CHECK(complaint("n[1,]") == "'' is no range of node numbers");
  CHECK(complaint("n[,1]") == "'' is no range of node numbers");
  CHECK(complaint("n[3-1]") == "'3-1' is no range of node numbers");
  CHECK(complaint("n[1-]") == "'1-' is no range of node numbers");
  CHECK(complaint("n[-1]") == "'-1' is no range of node numbers");
  CHECK(complaint("n[a-b]") == "'a-b' is no range of node numbers");
  CHECK(complaint("n[1234567890]") == "'1234567890' is no range of node numbers");
}

TEST_CASE("a list is not expanded beyond the limit") {
  CHECK(names("n[1-100000]").size() == listed_nodes_max);
  const std::string too_many = "more than 100000 nodes are listed";
  CHECK(complaint("n[0-100000]") == too_many);
  CHECK(complaint("n[0-999999999]") == too_many);
  CHECK(complaint("n[1-100000],m") == too_many);
  CHECK(complaint("n[1-99999],m,o") == too_many);
  CHECK(complaint("r[1-1000]n[1-1000]") == too_many);
  CHECK(complaint("a[1-99999][1-99999][1-99999]") == too_many);
}

}  // namespace dlaunch::launcher
