// Without a CASE_ this compiles; with any of them it must not.
#include <dlaunch/dlaunch.hpp>

#include <array>
#include <span>
#include <string>
#include <vector>

struct Unsupported {
  int x;
};

void use(dlaunch::Communicator& comm) {
  std::vector<float> data(4);
  const std::vector<float> constant(4);
  std::array<std::int64_t, 2> numbers{};
  comm.all_reduce(data);
  comm.all_reduce(std::span(data).first(2));  // A span may be temporary: it owns nothing.
  comm.all_reduce(numbers, dlaunch::ReduceOp::max);
  comm.all_gather(constant, data);
  comm.send(dlaunch::view_of(constant[0]), 1);
#if defined(CASE_TEMPORARY_INPUT)
  comm.send(std::vector<float>(4), 1);
#elif defined(CASE_TEMPORARY_OUTPUT)
  comm.recv(std::vector<float>(4), 1);
#elif defined(CASE_CONST_OUTPUT)
  comm.all_gather(data, constant);
#elif defined(CASE_CONST_INOUT)
  comm.all_reduce(constant);
#elif defined(CASE_UNSUPPORTED_TYPE)
  std::vector<Unsupported> unsupported(4);
  comm.all_reduce(unsupported);
#elif defined(CASE_TEXT)
  std::vector<char> text(4);
  comm.all_reduce(text);
#elif defined(CASE_VECTOR_OF_BOOL)
  std::vector<bool> bits(4);
  comm.all_reduce(bits);
#elif defined(CASE_INITIALIZER_LIST)
  comm.recv({1, 2, 3}, 1);
#elif defined(CASE_TEMPORARY_VIEW_OF)
  comm.send(dlaunch::view_of(1.0f), 1);
#elif defined(CASE_CONST_VIEW_AS_VIEW)
  const dlaunch::ConstTensorView view(constant);
  comm.all_reduce(view);
#elif defined(CASE_DROPPED_WORK)
  comm.start_all_reduce(data);
#endif
}
