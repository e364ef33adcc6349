#include "collectives/algorithms/algorithms.hpp"
#include "collectives/communicator/device_work.hpp"
#include "collectives/communicator/state.hpp"
#include "collectives/device/loader.hpp"
#include "collectives/device/plan.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace dlaunch::device {

Request barrier(int device, void* byte) {
  transport::Fingerprint print;
  print.op = transport::Op::barrier;
  print.dtype = DType::u8;
  print.root = -1;
  print.traffic = transport::device_bit;
  print.count = byte != nullptr ? 1 : 0;
  return {print, device, any_source, [byte](const Call& /*call*/) {
            Plan plan;
            if (byte == nullptr) return plan;
            plan.reduce = ReduceOp::sum;
            plan.steps.push_back({Move::all_reduce, byte, byte, 1, -1});
            return plan;
          }};
}

}  // namespace dlaunch::device

/// A communicator's calls with CUDA buffers. They are put on their stream by the thread that calls,
/// also those that are started.
namespace dlaunch {

using device::Request;
using transport::Fingerprint;
using transport::Op;

namespace {

bool is_message(const Fingerprint& call) { return transport::is_message(call.op); }

}  // namespace

void Communicator::State::use_device(Call& call, const Request& request, const Options& options) {
  if (device && device->device() != request.device) {
    throw Error(Errc::misuse, call.label() + " on rank " + std::to_string(call.rank()) +
                                  ": the buffers lie on CUDA device " +
                                  std::to_string(request.device) + ", but '" + group.name +
                                  "' has used device " + std::to_string(device->device()) +
                                  ": a communicator keeps to one device");
  }
  if (device) return;
  device::Library& library = device::library();
  throw_if_failed(call, library.check(request.device));
  if (is_message(request.fingerprint)) {
    throw Error(Errc::misuse, call.label() + " on rank " + std::to_string(call.rank()) +
                                  ": a communicator's first call with CUDA buffers is one that "
                                  "all ranks make, a collective: NCCL comes up in it; call "
                                  "prepare_device on all ranks before");
  }
  bool capturing = false;
  throw_if_failed(call, library.is_capturing(request.device, options.cuda_stream, capturing));
  if (capturing) {
    throw Error(Errc::misuse, call.label() + " on rank " + std::to_string(call.rank()) +
                                  ": a communicator's first call with CUDA buffers cannot be "
                                  "captured: NCCL comes up in it; call prepare_device on all "
                                  "ranks before");
  }
  keep_device(std::make_unique<DeviceCalls>(call, library, request.device));
}

/// Takes the device's calls; from now on a thread looks after them.
void Communicator::State::keep_device(std::unique_ptr<DeviceCalls> calls) {
  device = std::move(calls);
  device_activity = [this]() -> transport::UnderWay {
    return {{.communicator = group.id,
             .group = group.name,
             .call = device->history().last(),
             .on_stream = true}};
  };
  {
    const auto lock = mesh->lock();
    mesh->control().begin(device_activity);
  }
  device_memory->use(device->group(), device->device());
  device->watch([this] { return look_after_device(); });
}

bool Communicator::State::look_after_device() {
  if (error.is_set()) {
    device->give_up();
    return false;
  }
  const transport::Fingerprint last = device->history().last();
  const Call::Setting setting{*mesh, group,   kept,       aborted, timeout,
                              {},    nullptr, any_source, 0,       &device->history()};
  Call call(setting, last);
  try {
    attempt(call, [this](Call& looking) {
      looking.tell_device_calls(device->history());
      looking.look();
      device->check(looking);
    });
    return true;
  } catch (...) {
    return false;  // The error sticks, and the program's next call throws it.
  }
}

void Communicator::State::on_device(const Request& request, const Options& options,
                                    const std::function<void(Call&, const device::Mark&)>& then) {
  check_process();
  queue->finish_all();
  Fingerprint fingerprint = request.fingerprint;
  if (!is_message(fingerprint)) {
    fingerprint.traffic |= traffic;
    fingerprint.sequence = ++sequence;
    fingerprint.argument += Fingerprint::argument_of(fingerprint.traffic);
  }
  throw_if_broken();
  CallHistory* history = device ? &device->history() : nullptr;
  Flight::Entry entry =
      is_message(fingerprint)
          ? flight.begin_message(fingerprint, options, request.peer, Flight::Kind::call)
          : flight.begin(fingerprint.record(), options.site);
  const Call::Setting setting{*mesh,        group,  kept,         aborted, timeout_of(options),
                              options.site, &entry, request.peer, 0,       history};
  Call call(setting, fingerprint);
  attempt(call, [&](Call& running) {
    check_timeout(running, options.timeout);
    if (!device && !is_message(fingerprint)) {
      if (unsettled != 0) find_shm_groups(running);
      if (shm) running.use(*shm, running.fingerprint().record());
      if (nodes) running.use(*nodes);
    }
    const device::Plan plan = request.plan(running);
    use_device(running, request, options);
    running.look_at_news();
    const device::Mark mark = device->enqueue(running, plan, options.cuda_stream);
    note_on_device(running, plan);
    then(running, mark);
  });
  entry.done();
}

/// Notes a call on the device. A call that waits for nobody is told to others later, by the thread,
/// or together with other calls.
void Communicator::State::note_on_device(Call& call, const device::Plan& plan) {
  constexpr std::size_t told_together = 64;
  CallHistory& history = device->history();
  const Fingerprint& fingerprint = call.fingerprint();
  if (!is_message(fingerprint)) {
    history.record(fingerprint);
  } else {
    for (const device::Step& step : plan.steps) {
      Fingerprint message;
      message.op = step.move == device::Move::send ? Op::send : Op::recv;
      message.dtype = step.dtype;
      message.count = step.count / size_of(step.dtype);
      history.record_message(group.world_rank(step.peer), message);
    }
  }
  if (history.untold_count() >= told_together) call.tell_device_calls(history);
}

device::Request Communicator::State::barrier_on_device() {
  check_process();
  throw_if_broken();
  if (!device) {
    throw Error(Errc::misuse, "barrier on a CUDA stream on rank " + std::to_string(group.rank) +
                                  ": '" + group.name +
                                  "' has no device yet; call prepare_device on all ranks before");
  }
  return device::barrier(device->device(), device->byte());
}

void Communicator::State::run_on_device(const Request& request, const Options& options) {
  on_device(request, options, [&](Call& call, const device::Mark& mark) {
    // On a stream of the program's own only the stream's order counts.
    if (options.cuda_stream == nullptr) await_on_device(call, *mark.event);
  });
}

std::shared_ptr<DeviceWork> Communicator::State::begin_on_device(const Request& request,
                                                                 const Options& options) {
  std::shared_ptr<DeviceWork> work;
  on_device(request, options, [&](Call& call, const device::Mark& mark) {
    work = std::make_shared<DeviceWork>(shared_from_this(), call.fingerprint(), settled(options),
                                        mark);
  });
  return work;
}

Work Communicator::State::start_on_device(const Request& request, const Options& options) {
  return Work(begin_on_device(request, options));
}

std::shared_ptr<DeviceWork> Communicator::State::start_batch_on_device(
    std::span<const Transfer> transfers, const Options& options) {
  return begin_on_device(device::messages(transfers), options);
}

std::unique_ptr<DeviceCalls> Communicator::State::split_device(Call& call, int color, int key) {
  if (!device) return nullptr;
  auto made = device->split(call, color, key);
  if (!made) return nullptr;
  return std::make_unique<DeviceCalls>(device->library(), device->device(), std::move(made));
}

void Communicator::State::shrink_device(State& parent, std::span<const int> survivors,
                                        const Options& options) {
  std::vector<int> gone;
  for (int rank = 0; rank < parent.group.size(); ++rank) {
    if (!std::binary_search(survivors.begin(), survivors.end(), rank)) gone.push_back(rank);
  }
  Fingerprint fingerprint;
  fingerprint.op = Op::shrink;
  std::unique_ptr<device::Group> made;
  collective(fingerprint, options, [&](Call& call) {
    made = parent.device->shrink(call, gone);
    std::vector<std::uint8_t> all(static_cast<std::size_t>(call.size()));
    all[static_cast<std::size_t>(call.rank())] = made != nullptr ? 1 : 0;
    algorithms::all_gather(call.ranks(),
                           {reinterpret_cast<std::byte*>(all.data()), {call.size(), 1}});
    if (std::find(all.begin(), all.end(), 0) != all.end()) made.reset();
  });
  if (!made) return;
  keep_device(std::make_unique<DeviceCalls>(parent.device->library(), parent.device->device(),
                                            std::move(made)));
}

void Communicator::State::end_device() noexcept {
  if (!device) return;
  for (DeviceWork* work : std::vector<DeviceWork*>(device_works)) work->end();
  destroyed = true;
  const bool is_quiet = !error.is_set() && device->is_quiet();
  device_memory->leave(is_quiet);
  device->end(is_quiet);
  const auto lock = mesh->lock();
  mesh->control().end(device_activity);
}

// ---- Started calls. ----

DeviceWork::DeviceWork(std::shared_ptr<Communicator::State> owner, const Fingerprint& call,
                       const Options& options, const device::Mark& mark)
    : owner_(std::move(owner)), fingerprint_(call), options_(options), mark_(mark.event) {
  if (mark.captured) {
    owner_.reset();  // Its graph runs the call, at any time.
  } else {
    owner_->device_works.push_back(this);
  }
}

DeviceWork::~DeviceWork() {
  if (owner_) std::erase(owner_->device_works, this);
}

/// Completes the call if the device is done, unless an error is set, which may be why it is done.
bool DeviceWork::settle() {
  const auto answer = mark_->query();
  if (answer.now == device::Answer::Now::pending || owner_->error.is_set()) return false;
  if (answer.has_failed()) return false;
  std::erase(owner_->device_works, this);
  owner_.reset();
  return true;
}

bool DeviceWork::is_done() noexcept {
  if (!owner_) return true;
  try {
    return settle() || owner_->error.is_set() || mark_->query().has_failed();
  } catch (...) {
    return true;  // wait() reports it.
  }
}

void DeviceWork::end() noexcept {
  if (is_done() && !owner_) return;
  error_ = std::make_exception_ptr(Error(
      Errc::aborted,
      "the communicator '" + owner_->group.name + "' was destroyed before the call was complete"));
  std::erase(owner_->device_works, this);
  owner_.reset();
}

void DeviceWork::wait() {
  if (owner_ && !settle()) {
    try {
      owner_->wait_on_device(fingerprint_, options_, *mark_);
    } catch (...) {
      error_ = std::current_exception();
    }
    std::erase(owner_->device_works, this);
    owner_.reset();
  }
  if (error_) std::rethrow_exception(error_);
}

bool DeviceWork::wait_until(Clock::time_point until) {
  // A device sends no notice, so it is asked again and again.
  constexpr auto look_interval = std::chrono::microseconds(200);
  if (!owner_) return true;
  const auto owner = owner_;
  return owner->watch([this] { return is_done(); }, until, look_interval);
}

void DeviceWork::on_complete(Work::Completion /*completion*/) {
  throw Error(
      Errc::unsupported,
      "on_complete is for host buffers, and this call's are on a CUDA device: put a callback "
      "behind it on its stream (cudaLaunchHostFunc)");
}

void DeviceWork::order_before(void* cuda_stream) {
  const auto answer = mark_->order_before(cuda_stream);
  if (answer.has_failed()) throw Error(answer.code, "order_before: " + answer.why);
}

void Communicator::State::wait_on_device(const Fingerprint& fingerprint, const Options& options,
                                         device::Event& mark) {
  check_process();
  throw_if_broken();
  const Call::Setting setting{*mesh,        group,   kept,       aborted, timeout_of(options),
                              options.site, nullptr, any_source, 0,       &device->history()};
  Call call(setting, fingerprint);
  attempt(call, [&](Call& waiting) { await_on_device(waiting, mark); });
}

void Communicator::State::await_on_device(Call& call, device::Event& mark) {
  call.tell_device_calls(device->history());
  const device::Answer answer = device->wait(call, mark);
  // Why it is done, or failed, if the thread knows.
  throw_if_broken();
  throw_if_failed(call, answer);
}

}  // namespace dlaunch
