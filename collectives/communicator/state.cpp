#include "collectives/communicator/state.hpp"

#include "collectives/algorithms/select/select.hpp"
#include "collectives/communicator/collective_work.hpp"
#include "collectives/communicator/work_state.hpp"

#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

namespace dlaunch {

using transport::Fingerprint;
using transport::Scope;

namespace {

/// Whether only this rank's link to the agent has broken: the others hear by their own links.
bool is_cut_off(Membership* membership) {
  try {
    if (membership != nullptr) membership->losses();
    return false;
  } catch (const Error& error) {
    return error.errc() == Errc::peer_lost;
  }
}

/// How long abort(), which waits for nobody, waits for the mesh's lock: a thread that asks a store
/// which is away may have it for long.
constexpr auto abort_patience = std::chrono::milliseconds(100);

/// Whether the mesh's lock is free, or becomes so soon.
bool is_free_soon(transport::Links& mesh) {
  const auto until = Clock::now() + abort_patience;
  while (!mesh.try_lock()) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(abort_patience / 1000);
  }
  return true;
}

/// Whether a probe, which has taken nothing, found nothing in the time that it was given itself.
bool is_late_probe(const Call& call, const Error& failure) {
  const auto* known = dynamic_cast<const CallError*>(&failure);
  return failure.errc() == Errc::timeout && call.fingerprint().op == transport::Op::probe &&
         call.has_own_timeout() && (known == nullptr || !known->told());
}

}  // namespace

void FlightPlace::take(transport::Links& mesh, const Group& group) {
  flight_ = mesh.made_calls().flight();
  place_ =
      flight_->join(mesh.made_calls().flight_id(group.id), group.name, group.rank, group.size());
}

void Communicator::State::refuse_process() {
  throw Error(Errc::misuse,
              "this communicator belongs to the parent process; a forked child may not use it and "
              "needs a rank of its own");
}

/// The nodes are known only once all ranks have been heard, so a call in which all ranks are heard
/// anyway finds them. Until then the ranks act as if each had a node of its own.
void Communicator::State::find_shm_groups(Call& call) {
  call.prepare([&] {
    if (!shm_sought) shm = form_shm_group(call, *mesh, group);
    shm_sought = true;
    if (!shm && !transport::waits_for_all(call.fingerprint().op)) return;
    if (!shm) nodes = form_nodes(call, *mesh, group);
    goes_by_nodes = nodes != nullptr;
    unsettled = 0;
  });
}

Flight::Call Communicator::State::set_apart(Fingerprint& fingerprint) const {
  fingerprint.argument += Fingerprint::argument_of(fingerprint.traffic);
  // The table goes into the first call, so that ranks with different tables notice it.
  if (fingerprint.sequence == 1) fingerprint.argument ^= mesh->table().digest();
  return fingerprint.record();
}

/// Wrong arguments fail one call, and in a collective the others' same call; a late probe fails
/// alone; anything else breaks the communicator.
void Communicator::State::fail(Call& call) {
  call.keep_thread();
  try {
    throw;
  } catch (const Error& failure) {
    fail(call, failure);
  } catch (const std::exception& failure) {
    // Out of memory, or thrown by a custom reduction: the others must not wait for it.
    fail(call, Error(Errc::internal, call.label() + ": rank " + std::to_string(group.rank) +
                                         " failed: " + failure.what()));
  }
}

void Communicator::State::fail(Call& call, const Error& failure) {
  if (is_wrong_call(failure)) {
    if (transport::is_message(call.fingerprint().op)) return;
    flight.note_heard();
    call.tell_failure(failure, Scope::this_call);
    try {
      return call.refuse();
    } catch (const Error& lost) {
      // The next call reports it.
      return break_off(call, lost);
    }
  }
  if (!is_late_probe(call, failure)) break_off(call, failure);
}

void Communicator::State::break_off(Call& call, const Error& failure) {
  if (failure.errc() == Errc::mismatch) flight.note_heard();
  const auto* known = dynamic_cast<const CallError*>(&failure);
  CallError broken = known != nullptr ? *known : CallError(failure.errc(), failure.what());
  if (destroyed && failure.errc() == Errc::aborted) {
    broken = {Errc::aborted, call.label() + ": rank " + std::to_string(group.rank) +
                                 " destroyed the communicator before the call was complete"};
  }
  error.set(broken);
  if (device) device->give_up();
  const bool abort_told_all = !transport::is_message(call.fingerprint().op) &&
                              call.fingerprint().sequence >= abort_told_from;
  // With few ranks, the one that failed first told all, if it had connections to all.
  const bool told = broken.told() && group.size() <= 64 && !goes_by_nodes;
  const bool tells = !abort_told_all && !told;
  if (tells && !is_cut_off(membership.get())) call.tell_failure(broken, Scope::from_here_on);
  if (membership) membership->report(broken, broken.claim());
}

void Communicator::State::give_up(const Error& why) noexcept {
  if (error.is_set() || aborted || is_forked()) return;
  break_between_calls(why);
}

/// Gives `body` the call that would come next. Others may still be in the last one that ran here,
/// and can complete it.
void Communicator::State::between_calls(const std::function<void(Call&)>& body) {
  Fingerprint next;
  next.op = transport::Op::barrier;
  next.sequence = sequence + 1;
  const Call::Setting setting{*mesh, group, kept, aborted, timeout, CallSite{"", 0, ""}};
  Call call(setting, next);
  body(call);
}

void Communicator::State::break_between_calls(const Error& why) noexcept {
  try {
    between_calls([&](Call& next) { break_off(next, why); });
  } catch (const std::exception&) {
    // Nobody can be told; the others notice that this rank is gone, or does not come.
    aborted.set(CallSite{"", 0, ""});
  }
}

/// A call that is under way here may end well, or end with the abort; then it tells the others,
/// too, whose same call ends. So this is about the calls that come after it.
void Communicator::State::tell_abort() noexcept {
  if (error.is_set() || !is_free_soon(*mesh)) return;
  try {
    between_calls([this](Call& next) {
      next.tell_failure(abort_error(), Scope::from_here_on);
      abort_told_from = next.fingerprint().sequence;
    });
  } catch (const std::exception&) {
    // This rank's next call tells them, or its end.
  }
}

Error Communicator::State::abort_error() const {
  return {Errc::aborted, "'" + group.name + "': " + aborted_text(group.rank, aborted.site())};
}

Work Communicator::State::start(CollectiveCall what) {
  what.forget_unused(group.rank);
  what.traffic = traffic;
  if (what.device() >= 0) return start_on_device(device::request(what), what.options);
  check_process();
  mesh->control().note_started();
  try {
    what.options = settled(what.options);
    auto work = take_work();
    work->set(what);
    queue->start(*work, *mesh);
    return Work(std::move(work));
  } catch (const std::system_error& failure) {
    throw Error(Errc::internal, std::string("cannot start a thread for started calls: ") +
                                    failure.what() +
                                    "; raise the limit of processes, or use the blocking calls");
  }
}

Options Communicator::State::settled(const Options& options) const {
  Options now = options;
  if (now.timeout == Clock::duration::zero()) now.timeout = timeout;
  return now;
}

bool Communicator::State::watch(const std::function<bool()>& holds, Clock::time_point until,
                                Clock::duration look_interval) {
  const auto lock = mesh->lock();
  const transport::Caller caller(mesh->progress_lock());
  try {
    while (!holds()) {
      const auto now = Clock::now();
      if (now >= until) {
        mesh->look();
        return holds();
      }
      mesh->step(look_interval < until - now ? now + look_interval : until);
    }
  } catch (const Error&) {
    // Nothing moves any more; the call itself will say why.
  }
  return true;
}

/// A message of which a part has left leaves as a whole: nothing else could follow on its way,
/// which is that of other communicators, too. A receiver that does not come for it breaks that way.
/// Senders of synchronous messages are told that those were received.
void Communicator::State::finish_begun_messages() {
  constexpr auto limit = std::chrono::seconds(5);
  constexpr auto look_interval = std::chrono::milliseconds(50);
  const auto begun = [](const MessageWork* work) { return work->has_begun_to_leave(); };
  watch(
      [&] {
        if (error.is_set() || aborted) return true;
        const MessageWork* each = messages.first();
        while (each != nullptr && !begun(each)) each = decltype(messages)::after(*each);
        return each == nullptr && !mesh->is_telling();
      },
      Clock::now() + limit, look_interval);
}

void Communicator::State::end() {
  const bool others_go_on = mesh.use_count() > 1;
  const auto is_telling = [this] {
    const auto lock = mesh->lock();
    return mesh->is_telling();
  };
  if (std::uncaught_exceptions() == 0 && ((others_go_on && !messages.empty()) || is_telling())) {
    finish_begun_messages();
  }
  // No call of this rank has ended with the abort.
  if (aborted && !error.is_set()) break_between_calls(abort_error());
  end_device();
  const Error why(Errc::aborted, "the communicator '" + group.name +
                                     "' was destroyed before the call was complete");
  queue->end(why, mesh, [this] {
    destroyed = true;
    aborted.set(CallSite{"", 0, ""});
    mesh->wake();
  });
  while (!messages.empty()) messages.last()->end(std::make_exception_ptr(why));
  {
    const auto lock = mesh->lock();
    mesh->control().forget(group.id);
    mesh->inbox().forget(group.id);
  }
  // Joinables may outlive it.
  error.set(CallError(Errc::aborted, "the communicator '" + group.name + "' was destroyed"));
}

std::shared_ptr<Communicator::State> Communicator::State::child(
    Group child_group, std::unique_ptr<DeviceCalls> child_device) const {
  auto made = std::make_shared<State>();
  made->group = std::move(child_group);
  made->mesh = mesh;
  made->flight.take(*made->mesh, made->group);
  made->flight.limit_waits(flight.stuck_after());
  made->progress_thread = progress_thread;
  made->membership = membership;
  made->timeout = timeout.load();
  if (child_device) made->keep_device(std::move(child_device));
  return made;
}

}  // namespace dlaunch
