#include "collectives/nccl/group.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace dlaunch::nccl {

using device::Answer;
using device::Move;
using device::Plan;
using device::Step;

namespace {

NcclConfig never_blocking() {
  NcclConfig config;
  config.blocking = 0;
  return config;
}

Answer was_aborted() { return Answer::failed(Errc::aborted, "NCCL was aborted"); }

/// The types that NCCL has; what else comes is checked by whoever makes plans.
NcclDType dtype_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return nccl_u8;
    case DType::i8:
      return nccl_i8;
    case DType::i32:
      return nccl_i32;
    case DType::u32:
      return nccl_u32;
    case DType::i64:
      return nccl_i64;
    case DType::u64:
      return nccl_u64;
    case DType::f16:
      return nccl_f16;
    case DType::bf16:
      return nccl_bf16;
    case DType::f32:
      return nccl_f32;
    case DType::f64:
      return nccl_f64;
    case DType::i16:
    case DType::u16:
    case DType::boolean:
    case DType::c64:
    case DType::c128:
      break;
  }
  return static_cast<NcclDType>(-1);  // NCCL says that it is none.
}

NcclRedOp op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::premul_sum:
      return nccl_sum;
    case ReduceOp::product:
      return nccl_prod;
    case ReduceOp::min:
      return nccl_min;
    case ReduceOp::max:
      return nccl_max;
    case ReduceOp::mean:
      return nccl_avg;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::custom:
      break;
  }
  return -1;
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

/// That something goes on in the background is no failure: progress() follows it.
Answer NcclGroup::answer_of(NcclResult result, const char* function) {
  if (result == nccl_success) return {};
  if (result == nccl_in_progress) return Answer::pending();
  std::string why = std::string(function) + " failed: " + nccl_.get_error_string(result);
  const char* last = nccl_.get_last_error(comm_);
  if (last != nullptr && *last != '\0') why += std::string(": ") + last;
  return Answer::failed(result == nccl_remote_error ? Errc::peer_lost : Errc::internal,
                        std::move(why));
}

Answer NcclGroup::join(const device::Id& id, int rank, int size) {
  const std::lock_guard lock(mutex_);
  const Current current(devices_.cuda, context_);
  NcclUniqueId unique{};
  static_assert(sizeof unique == sizeof id);
  std::memcpy(&unique, id.data(), sizeof unique);
  NcclConfig config = never_blocking();
  return answer_of(nccl_.comm_init(&comm_, size, unique, rank, &config), "ncclCommInitRankConfig");
}

Answer NcclGroup::progress() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return was_aborted();
  const Current current(devices_.cuda, context_);
  return follow();
}

Answer NcclGroup::follow() {
  NcclResult state = nccl_success;
  const NcclResult asked = nccl_.get_async_error(comm_, &state);
  if (asked != nccl_success) return answer_of(asked, "ncclCommGetAsyncError");
  if (state == nccl_success) {
    for (const NcclRedOp op : std::exchange(ops_, {})) nccl_.destroy_op(op, comm_);
  }
  return answer_of(state, "NCCL");
}

Answer NcclGroup::enqueue(const Plan& plan, void* stream, device::Mark& mark) {
  const std::lock_guard lock(mutex_);
  if (ended_) return was_aborted();
  const Current current(devices_.cuda, context_);
  Answer answer = devices_.is_capturing(stream, mark.captured);
  if (!answer.has_failed()) answer = copy(plan, stream);
  if (!answer.has_failed()) answer = launch(plan, stream);
  if (!answer.has_failed()) answer = follow();
  return answer.is_done() ? record(stream, mark) : answer;
}

Answer NcclGroup::copy(const Plan& plan, void* stream) {
  for (const Step& step : plan.steps) {
    if (step.move != Move::copy) continue;
    const auto answer =
        devices_.answer_of(devices_.cuda.copy_async(address_of(step.out), address_of(step.in),
                                                    step.count * size_of(plan.dtype), stream),
                           "cuMemcpyDtoDAsync");
    if (answer.has_failed()) return answer;
  }
  return {};
}

Answer NcclGroup::make_op(const Plan& plan, NcclRedOp& op) {
  op = op_of(plan.reduce);
  if (plan.reduce != ReduceOp::premul_sum) return {};
  auto scalar = scalar_of(plan.factor, plan.dtype);
  const auto answer = answer_of(nccl_.make_premul_sum(&op, scalar.data(), dtype_of(plan.dtype),
                                                      nccl_scalar_host_immediate, comm_),
                                "ncclRedOpCreatePreMulSum");
  if (!answer.has_failed()) ops_.push_back(op);
  return answer;
}

Answer NcclGroup::launch(const Plan& plan, void* stream) {
  NcclRedOp op = nccl_sum;
  if (plan.reduce != ReduceOp{}) {
    if (const auto answer = make_op(plan, op); answer.has_failed()) return answer;
  }
  if (plan.steps.size() == 1) {
    return answer_of(launch(plan.steps.front(), dtype_of(plan.dtype), op, stream), "NCCL");
  }
  if (const auto answer = answer_of(nccl_.group_start(), "ncclGroupStart"); answer.has_failed()) {
    return answer;
  }
  Answer failed;
  for (const Step& step : plan.steps) {
    if (step.move == Move::copy || failed.has_failed()) continue;
    failed = answer_of(launch(step, dtype_of(plan.dtype), op, stream), "NCCL");
  }
  // A group that was begun is ended, also where it failed.
  const Answer ended = answer_of(nccl_.group_end(), "NCCL");
  return failed.has_failed() ? failed : ended;
}

NcclResult NcclGroup::launch(const Step& step, NcclDType dtype, NcclRedOp op, void* stream) {
  switch (step.move) {
    case Move::all_reduce:
      return nccl_.all_reduce(step.in, step.out, step.count, dtype, op, comm_, stream);
    case Move::reduce:
      return nccl_.reduce(step.in, step.out, step.count, dtype, op, step.peer, comm_, stream);
    case Move::broadcast:
      return nccl_.broadcast(step.in, step.out, step.count, dtype, step.peer, comm_, stream);
    case Move::all_gather:
      return nccl_.all_gather(step.in, step.out, step.count, dtype, comm_, stream);
    case Move::reduce_scatter:
      return nccl_.reduce_scatter(step.in, step.out, step.count, dtype, op, comm_, stream);
    case Move::send:
      return nccl_.send(step.in, step.count, dtype, step.peer, comm_, stream);
    case Move::recv:
      return nccl_.recv(step.out, step.count, dtype, step.peer, comm_, stream);
    case Move::copy:
      break;  // Is on the stream already.
  }
  return nccl_success;
}

Answer NcclGroup::make_mark(void* stream, device::Mark& mark) {
  const std::lock_guard lock(mutex_);
  if (ended_) return was_aborted();
  const Current current(devices_.cuda, context_);
  return record(stream, mark);
}

/// The event of a capture belongs to its graph.
Answer NcclGroup::record(void* stream, device::Mark& mark) {
  const bool again = !mark.captured && mark.spare.use_count() == 1;
  mark.event = again ? std::move(mark.spare) : std::make_shared<StreamEvent>(devices_, context_);
  return static_cast<StreamEvent&>(*mark.event).record(stream);
}

Answer NcclGroup::split(int color, int key, std::unique_ptr<device::Group>& made) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return was_aborted();
  const Current current(devices_.cuda, context_);
  auto child = std::make_unique<NcclGroup>(nccl_, devices_, context_);
  NcclConfig config = never_blocking();
  const Answer answer = answer_of(
      nccl_.comm_split(comm_, color < 0 ? nccl_split_no_color : color, key, &child->comm_, &config),
      "ncclCommSplit");
  if (!answer.has_failed() && color >= 0) made = std::move(child);
  return answer;
}

void NcclGroup::abort() noexcept {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  if (comm_ == nullptr) return;
  const Current current(devices_.cuda, context_);
  // It may say that it failed before; there is nobody left to tell.
  static_cast<void>(nccl_.comm_abort(std::exchange(comm_, nullptr)));
}

bool NcclGroup::can_shrink() {
  const std::lock_guard lock(mutex_);
  return comm_ != nullptr && nccl_.comm_shrink != nullptr;
}

bool NcclGroup::can_revoke() {
  const std::lock_guard lock(mutex_);
  return comm_ != nullptr && nccl_.comm_revoke != nullptr;
}

Answer NcclGroup::shrink(std::span<const int> gone, bool is_quiet,
                         std::unique_ptr<device::Group>& made) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return was_aborted();
  const Current current(devices_.cuda, context_);
  if (!is_quiet) ended_ = true;
  auto child = std::make_unique<NcclGroup>(nccl_, devices_, context_);
  NcclConfig config = never_blocking();
  std::vector<int> excluded(gone.begin(), gone.end());
  const Answer answer = answer_of(
      nccl_.comm_shrink(comm_, excluded.data(), static_cast<int>(excluded.size()), &child->comm_,
                        &config, is_quiet ? nccl_shrink_default : nccl_shrink_abort),
      "ncclCommShrink");
  if (!answer.has_failed()) made = std::move(child);
  return answer;
}

Answer NcclGroup::revoke() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return was_aborted();
  ended_ = true;
  const Current current(devices_.cuda, context_);
  return answer_of(nccl_.comm_revoke(comm_, nccl_revoke_default), "ncclCommRevoke");
}

void* NcclGroup::add_memory(void* memory, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  if (ended_ || nccl_.comm_register == nullptr || nccl_.comm_deregister == nullptr) return nullptr;
  const Current current(devices_.cuda, context_);
  void* handle = nullptr;
  const NcclResult result = nccl_.comm_register(comm_, memory, bytes, &handle);
  return result == nccl_success ? handle : nullptr;
}

/// What was aborted knows no memory any more.
void NcclGroup::remove_memory(void* handle) noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const Current current(devices_.cuda, context_);
  static_cast<void>(nccl_.comm_deregister(comm_, handle));
}

}  // namespace dlaunch::nccl
