#include "collectives/nccl/group.hpp"

#include "collectives/reduce/reduce_ops.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

namespace dlaunch::nccl {

using device::Answer;
using device::Move;
using device::Plan;
using device::Step;

namespace {

NcclConfig config_of(bool blocks) {
  NcclConfig config;
  config.blocking = blocks ? 1 : 0;
  return config;
}

Answer was_aborted() { return Answer::failed(Errc::aborted, "NCCL was aborted"); }

struct NcclType {
  DType dtype;
  NcclDType number;
};
/// The types that NCCL has.
constexpr NcclType types[] = {
    {DType::u8, nccl_u8},   {DType::i8, nccl_i8},     {DType::i32, nccl_i32},
    {DType::u32, nccl_u32}, {DType::i64, nccl_i64},   {DType::u64, nccl_u64},
    {DType::f16, nccl_f16}, {DType::bf16, nccl_bf16}, {DType::f32, nccl_f32},
    {DType::f64, nccl_f64},
};
struct NcclOp {
  ReduceOp op;
  NcclRedOp number;
};
/// The operations that NCCL has; a premul_sum is made of its sum.
constexpr NcclOp ops[] = {
    {ReduceOp::sum, nccl_sum}, {ReduceOp::premul_sum, nccl_sum}, {ReduceOp::product, nccl_prod},
    {ReduceOp::min, nccl_min}, {ReduceOp::max, nccl_max},        {ReduceOp::mean, nccl_avg},
};
static_assert(std::ranges::all_of(element_types, [](const ElementType& type) {
  return type.in_nccl ==
         (std::ranges::find(types, type.dtype, &NcclType::dtype) != std::end(types));
}));
static_assert(std::ranges::all_of(reduce_ops, [](const ReduceOpTraits& traits) {
  return traits.in_nccl == (std::ranges::find(ops, traits.op, &NcclOp::op) != std::end(ops));
}));

/// The number of the operation. Plans contain only those that NCCL has; NCCL itself refuses -1.
NcclDType dtype_of(DType dtype) {
  const auto* found = std::ranges::find(types, dtype, &NcclType::dtype);
  return found != std::end(types) ? found->number : static_cast<NcclDType>(-1);
}
NcclRedOp op_of(ReduceOp op) {
  const auto* found = std::ranges::find(ops, op, &NcclOp::op);
  return found != std::end(ops) ? found->number : -1;
}

/// The factor as an element of that type.
std::array<std::byte, 8> scalar_of(double factor, DType dtype) {
  std::array<std::byte, 8> scalar{};
  const auto put = [&](auto value) { std::memcpy(scalar.data(), &value, sizeof value); };
  if (dtype == DType::f16) {
    put(float16(static_cast<float>(factor)).bits);
  } else if (dtype == DType::bf16) {
    put(bfloat16(static_cast<float>(factor)).bits);
  } else if (dtype == DType::f32) {
    put(static_cast<float>(factor));
  } else {
    put(factor);
  }
  return scalar;
}

}  // namespace

/// Work in the background is no failure: progress() follows it.
Answer NcclGroup::answer_of(NcclResult result, const char* function, NcclComm comm) const {
  if (result == nccl_success) return {};
  if (result == nccl_in_progress) return Answer::pending();
  std::string why = std::string(function) + " failed: " + uses_.nccl.get_error_string(result);
  const char* last = uses_.nccl.get_last_error(comm);
  if (last != nullptr && *last != '\0') why += std::string(": ") + last;
  return Answer::failed(result == nccl_remote_error ? Errc::peer_lost : Errc::internal,
                        std::move(why));
}

Answer NcclGroup::join(const device::Id& id, int rank, int size) {
  const Current current(uses_.devices.cuda, uses_.context);
  NcclUniqueId unique{};
  static_assert(sizeof unique == sizeof id);
  std::memcpy(&unique, id.data(), sizeof unique);
  NcclConfig config = config_of(false);
  NcclComm comm = nullptr;
  const NcclResult result = uses_.nccl.comm_init(&comm, size, unique, rank, &config);
  handle_->put(comm);
  return answer_of(result, "ncclCommInitRankConfig", comm);
}

Answer NcclGroup::progress() {
  if (slot_) {
    if (!slot_->is_closed()) return Answer::pending();
    handle_->put(slot_->take());
    slot_.reset();
  }
  bool is_gone = false;
  const Inside inside = handle_->try_enter(is_gone);
  if (is_gone) return was_aborted();
  if (!inside) return Answer::pending();
  // Nothing here asks CUDA, so the context is left alone: callers ask again and again, while NCCL's
  // own thread needs the driver.
  if (const Answer revoked = answer_of(calling().revoked_with(), "ncclCommRevoke", inside.comm());
      revoked.has_failed()) {
    return revoked;
  }
  const Answer answer = follow(inside);
  if (!answer.is_done() || uses_.nccl.comm_revoke == nullptr) return answer;
  if (!calls_) return make_calls(inside);
  // Another thread may be revoking it.
  const Inside nobody_else = calls_->try_enter(is_gone);
  return nobody_else || is_gone ? Answer{} : Answer::pending();
}

Answer NcclGroup::make_calls(const Inside& inside) {
  if (calls_slot_) {
    calls_ = std::make_shared<CommHandle>(uses_, true);
    calls_->put(calls_slot_->take());
    calls_slot_.reset();
    return {};
  }
  const Current current(uses_.devices.cuda, uses_.context);
  const auto slot = std::make_shared<Slot>(uses_);
  if (!handle_->keep(slot)) return Answer::pending();
  NcclConfig config = config_of(true);
  const NcclResult result = uses_.nccl.comm_split(inside.comm(), 0, 0, slot->target(), &config);
  const Answer answer = answer_of(result, "ncclCommSplit", inside.comm());
  if (answer.has_failed()) return answer;
  calls_slot_ = slot;
  return Answer::pending();
}

Answer NcclGroup::check() {
  bool is_gone = false;
  const Inside inside = calling().try_enter(is_gone);
  if (!inside) return {};
  return state_of(inside);
}

Answer NcclGroup::state_of(const Inside& inside) const {
  NcclResult state = nccl_success;
  const NcclResult asked = uses_.nccl.get_async_error(inside.comm(), &state);
  return answer_of(asked != nccl_success ? asked : state, "NCCL", inside.comm());
}

Answer NcclGroup::follow(const Inside& inside) {
  const Answer answer = state_of(inside);
  if (answer.is_done()) {
    destroy_ops(inside);
    handle_->close_slot();
  }
  return answer;
}

void NcclGroup::destroy_ops(const Inside& inside) {
  for (const NcclRedOp op : std::exchange(ops_, {})) uses_.nccl.destroy_op(op, inside.comm());
}

/// CUDA itself may wait for room on the stream, which may never come; NCCL can be aborted
/// meanwhile.
Answer NcclGroup::enqueue(const Plan& plan, void* stream, device::Mark& mark) {
  const Current current(uses_.devices.cuda, uses_.context);
  Answer answer = uses_.devices.is_capturing(stream, mark.captured);
  if (!answer.has_failed()) answer = copy(plan, stream);
  if (answer.has_failed()) return answer;
  {
    const Inside inside = calling().enter();
    if (!inside) return was_aborted();
    answer = launch(inside, plan, stream);
    if (calls_) destroy_ops(inside);  // The call is on its stream.
    if (!answer.has_failed()) answer = calls_ ? state_of(inside) : follow(inside);
  }
  return answer.is_done() ? record(stream, mark) : answer;
}

Answer NcclGroup::copy(const Plan& plan, void* stream) {
  for (const Step& step : plan.steps) {
    if (step.move != Move::copy) continue;
    const auto answer = uses_.devices.answer_of(
        uses_.devices.cuda.copy_async(address_of(step.out), address_of(step.in),
                                      step.count * size_of(plan.dtype), stream),
        "cuMemcpyDtoDAsync");
    if (answer.has_failed()) return answer;
  }
  return {};
}

Answer NcclGroup::make_op(const Inside& inside, const Plan& plan, NcclRedOp& op) {
  op = op_of(plan.reduce);
  if (plan.reduce != ReduceOp::premul_sum) return {};
  auto scalar = scalar_of(plan.factor, plan.dtype);
  const auto answer =
      answer_of(uses_.nccl.make_premul_sum(&op, scalar.data(), dtype_of(plan.dtype),
                                           nccl_scalar_host_immediate, inside.comm()),
                "ncclRedOpCreatePreMulSum", inside.comm());
  if (!answer.has_failed()) ops_.push_back(op);
  return answer;
}

Answer NcclGroup::launch(const Inside& inside, const Plan& plan, void* stream) {
  NcclComm const comm = inside.comm();
  NcclRedOp op = nccl_sum;
  if (plan.reduce != ReduceOp{}) {
    if (const auto answer = make_op(inside, plan, op); answer.has_failed()) return answer;
  }
  if (plan.steps.size() == 1) {
    return answer_of(launch(comm, plan.steps.front(), dtype_of(plan.dtype), op, stream), "NCCL",
                     comm);
  }
  if (const auto answer = answer_of(uses_.nccl.group_start(), "ncclGroupStart", comm);
      answer.has_failed()) {
    return answer;
  }
  Answer failed;
  for (const Step& step : plan.steps) {
    if (step.move == Move::copy || failed.has_failed()) continue;
    failed = answer_of(launch(comm, step, dtype_of(plan.dtype), op, stream), "NCCL", comm);
  }
  // A group that was begun is ended, also where it failed.
  const Answer ended = answer_of(uses_.nccl.group_end(), "NCCL", comm);
  return failed.has_failed() ? failed : ended;
}

NcclResult NcclGroup::launch(NcclComm comm, const Step& step, NcclDType dtype, NcclRedOp op,
                             void* stream) {
  switch (step.move) {
    case Move::all_reduce:
      return uses_.nccl.all_reduce(step.in, step.out, step.count, dtype, op, comm, stream);
    case Move::reduce:
      return uses_.nccl.reduce(step.in, step.out, step.count, dtype, op, step.peer, comm, stream);
    case Move::broadcast:
      return uses_.nccl.broadcast(step.in, step.out, step.count, dtype, step.peer, comm, stream);
    case Move::all_gather:
      return uses_.nccl.all_gather(step.in, step.out, step.count, dtype, comm, stream);
    case Move::reduce_scatter:
      return uses_.nccl.reduce_scatter(step.in, step.out, step.count, dtype, op, comm, stream);
    case Move::send:
      return uses_.nccl.send(step.in, step.count, dtype, step.peer, comm, stream);
    case Move::recv:
      return uses_.nccl.recv(step.out, step.count, dtype, step.peer, comm, stream);
    case Move::copy:
      break;  // Copies are on the stream already.
  }
  return nccl_success;
}

Answer NcclGroup::make_mark(void* stream, device::Mark& mark) {
  if (!calling().is_there()) return was_aborted();
  const Current current(uses_.devices.cuda, uses_.context);
  return record(stream, mark);
}

/// The event of a capture belongs to its graph.
Answer NcclGroup::record(void* stream, device::Mark& mark) {
  const bool again = !mark.captured && mark.spare.use_count() == 1;
  mark.event =
      again ? std::move(mark.spare) : std::make_shared<StreamEvent>(uses_.devices, uses_.context);
  return static_cast<StreamEvent&>(*mark.event).record(stream);
}

/// Makes another group of this one, by the given function.
template <class Make>
Answer NcclGroup::make(const char* function, std::unique_ptr<device::Group>& made,
                       const Make& function_of) {
  const Inside inside = handle_->enter_revoked();
  if (!inside) return was_aborted();
  const Current current(uses_.devices.cuda, uses_.context);
  const auto slot = std::make_shared<Slot>(uses_);
  if (!handle_->keep(slot)) {
    return Answer::failed(Errc::internal, std::string(function) + ": NCCL is still at another one");
  }
  NcclConfig config = config_of(false);
  const Answer answer =
      answer_of(function_of(inside.comm(), slot->target(), &config), function, inside.comm());
  if (!answer.has_failed()) made = std::make_unique<NcclGroup>(uses_, slot);
  return answer;
}

Answer NcclGroup::split(int color, int key, std::unique_ptr<device::Group>& made) {
  const Answer answer =
      make("ncclCommSplit", made, [&](NcclComm comm, NcclComm* target, NcclConfig* config) {
        const int asked = color < 0 ? nccl_split_no_color : color;
        return uses_.nccl.comm_split(comm, asked, key, target, config);
      });
  if (color < 0) made.reset();
  return answer;
}

void NcclGroup::abort() noexcept {
  if (calls_) calls_->abort();
  handle_->abort();
}

bool NcclGroup::end(bool in_order, std::chrono::steady_clock::duration limit) noexcept {
  const auto until = std::chrono::steady_clock::now() + limit;
  const bool ended = !calls_ || calls_->end(in_order, limit);
  return handle_->end(in_order, until - std::chrono::steady_clock::now()) && ended;
}

bool NcclGroup::can_shrink() { return handle_->is_there() && uses_.nccl.comm_shrink != nullptr; }

bool NcclGroup::can_revoke() { return calling().is_there() && uses_.nccl.comm_revoke != nullptr; }

Answer NcclGroup::shrink(std::span<const int> gone, bool is_quiet,
                         std::unique_ptr<device::Group>& made) {
  // Nothing is under way in this communicator where calls have one of their own.
  const bool aborts = !is_quiet && !calls_;
  if (aborts) handle_->revoke();
  if (!is_quiet && calls_) static_cast<void>(revoke());
  std::vector<int> excluded(gone.begin(), gone.end());
  return make("ncclCommShrink", made, [&](NcclComm comm, NcclComm* target, NcclConfig* config) {
    return uses_.nccl.comm_shrink(comm, excluded.data(), static_cast<int>(excluded.size()), target,
                                  config, aborts ? nccl_shrink_abort : nccl_shrink_default);
  });
}

/// NCCL waits for its own threads in this call.
Answer NcclGroup::revoke() {
  const bool begun = calling().revoke_by(
      [&nccl = uses_.nccl](NcclComm comm) { return nccl.comm_revoke(comm, nccl_revoke_default); });
  return begun ? Answer::pending() : was_aborted();
}

void* NcclGroup::add_memory(void* memory, std::size_t bytes) noexcept {
  if (uses_.nccl.comm_register == nullptr || uses_.nccl.comm_deregister == nullptr) return nullptr;
  const Inside inside = calling().enter();
  if (!inside) return nullptr;
  const Current current(uses_.devices.cuda, uses_.context);
  void* handle = nullptr;
  const NcclResult result = uses_.nccl.comm_register(inside.comm(), memory, bytes, &handle);
  return result == nccl_success ? handle : nullptr;
}

/// An aborted communicator knows no memory any more.
void NcclGroup::remove_memory(void* handle) noexcept {
  const Inside inside = calling().enter_revoked();
  if (!inside) return;
  const Current current(uses_.devices.cuda, uses_.context);
  static_cast<void>(uses_.nccl.comm_deregister(inside.comm(), handle));
}

}  // namespace dlaunch::nccl
