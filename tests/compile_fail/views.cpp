// Without a CASE_ this compiles; with any of them it must not.
#include <dlaunch/dlaunch.hpp>
#include <dlaunch/tree.hpp>

#include <array>
#include <list>
#include <span>
#include <string>
#include <vector>

struct Unsupported {
  int x;
};
/// A type of the program's own that says what it shows.
struct Matrix {
  std::vector<float> cells;
  operator dlaunch::TensorView() { return cells; }
};

void use(dlaunch::Communicator& comm) {
  std::vector<float> data(4);
  const std::vector<float> constant(4);
  std::array<std::int64_t, 2> numbers{};
  float loss = 1;
  const float threshold = 2;
  bool flag = true;
  Matrix matrix;
  comm.all_reduce(data);
  comm.all_reduce(std::span(data).first(2));  // A span may be temporary: it owns nothing.
  comm.all_reduce(numbers, dlaunch::ReduceOp::max);
  comm.all_gather(constant, data);
  comm.all_reduce(loss);
  comm.broadcast(flag, 0);
  comm.all_gather(threshold, data);
  comm.send(constant[0], 1);
  comm.recv(numbers[1], 1);
  comm.all_reduce(matrix);
  comm.barrier({.timeout = std::chrono::seconds(1), .ordered_output = true});
  comm.all_reduce(data, {}, {.truncate_mean = true});
  comm.recv(data, 1, {.tag = 7});
  const dlaunch::Options common{.timeout = std::chrono::seconds(1)};  // Those of every call.
  comm.barrier(common);
  comm.all_reduce(data, dlaunch::ReduceOp::max, common);
  comm.send(data, 1, common);
  const dlaunch::TensorView writable(data);
  const dlaunch::ConstTensorView readable(constant);
  comm.send(flag ? readable : writable, 1);  // As T* converts to const T*.
  const dlaunch::Tree tree = dlaunch::Tree::dict({{"bytes", data.size()},
                                                  {"few", std::uint8_t{3}},
                                                  {"loss", loss},
                                                  {"losses", data},
                                                  {"names", std::vector<std::string>{"a", "b"}},
                                                  {"bits", std::vector<bool>{true, false}}});
#if defined(CASE_TEMPORARY_INPUT)
  comm.send(std::vector<float>(4), 1);
#elif defined(CASE_TEMPORARY_OUTPUT)
  comm.recv(std::vector<float>(4), 1);
#elif defined(CASE_TEMPORARY_SCALAR)
  comm.send(1.0f, 1);
#elif defined(CASE_TEMPORARY_SCALAR_OUTPUT)
  comm.all_reduce(loss + 1);
#elif defined(CASE_STARTED_TEMPORARY)
  const dlaunch::Work work = comm.start_all_reduce(std::vector<float>(4));
#elif defined(CASE_CONST_OUTPUT)
  comm.all_gather(data, constant);
#elif defined(CASE_CONST_INOUT)
  comm.all_reduce(constant);
#elif defined(CASE_CONST_SPAN)
  comm.broadcast(std::span(constant), 0);
#elif defined(CASE_CONST_SCALAR)
  comm.all_reduce(threshold);
#elif defined(CASE_CONST_VIEW)
  const dlaunch::ConstTensorView view(constant);
  comm.all_reduce(view);
#elif defined(CASE_UNSUPPORTED_ELEMENTS)
  std::vector<Unsupported> unsupported(4);
  comm.all_reduce(unsupported);
#elif defined(CASE_MATRIX)
  float rows[2][2]{};
  comm.all_reduce(rows);
#elif defined(CASE_VECTOR_OF_CHAR)
  std::vector<char> text(4);
  comm.all_reduce(text);
#elif defined(CASE_UNSUPPORTED_TYPE)
  Unsupported unsupported{};
  comm.all_reduce(unsupported);
#elif defined(CASE_CHAR)
  char letter = 'x';
  comm.broadcast(letter, 0);
#elif defined(CASE_STRING)
  std::string text = "x";
  comm.broadcast(text, 0);
#elif defined(CASE_LITERAL)
  comm.send("text", 1);
#elif defined(CASE_TREE)
  dlaunch::Tree value;
  comm.broadcast(value, 0);
#elif defined(CASE_OWNING_TENSOR)
  dlaunch::Tensor tensor;
  comm.all_reduce(tensor);
#elif defined(CASE_POINTER)
  comm.all_reduce(data.data());
#elif defined(CASE_VECTOR_OF_BOOL)
  std::vector<bool> bits(4);
  comm.all_reduce(bits);
#elif defined(CASE_LIST)
  std::list<float> list(4);
  comm.all_reduce(list);
#elif defined(CASE_INITIALIZER_LIST)
  comm.recv({1, 2, 3}, 1);
#elif defined(CASE_TAG_OF_COLLECTIVE)
  comm.broadcast(data, 0, {.tag = 1});
#elif defined(CASE_ORDERED_REDUCTION)
  comm.all_reduce(data, {}, {.ordered_output = true});
#elif defined(CASE_TRUNCATED_MESSAGE)
  comm.send(data, 1, {.truncate_mean = true});
#elif defined(CASE_TREE_OF_CHAR)
  const dlaunch::Tree letter = 'x';
#elif defined(CASE_DROPPED_WORK)
  comm.start_all_reduce(data);
#elif defined(CASE_DROPPED_BATCH)
  comm.start_batch({});
#elif defined(CASE_DROPPED_WAIT_FOR)
  dlaunch::Work().wait_for(std::chrono::seconds(1));
#elif defined(CASE_DROPPED_WAIT_ANY)
  dlaunch::wait_any(std::span<dlaunch::Work>(), std::chrono::seconds(1));
#elif defined(CASE_DROPPED_WAIT_SOME)
  dlaunch::wait_some(std::span<dlaunch::Work>(), std::chrono::seconds(1));
#elif defined(CASE_DROPPED_MATCH)
  comm.match(0);
#elif defined(CASE_DROPPED_GROUP)
  comm.duplicate();
#elif defined(CASE_DROPPED_LISTED_GROUP)
  comm.group({0, 1});
#elif defined(CASE_DROPPED_OBJECT)
  comm.broadcast_object("text", 0);
#elif defined(CASE_DROPPED_AGREED)
  comm.agree(1);
#elif defined(CASE_DROPPED_SHRUNK)
  comm.shrink();
#elif defined(CASE_DROPPED_WORLD)
  dlaunch::World::init();
#endif
}
