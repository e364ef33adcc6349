#include "launcher/pmi/pmix.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include <pmix.h>
#include <pmix_server.h>
#include <unistd.h>

/// libdlaunch_pmix.so: a PMIx server for one job at a time. It alone is linked with OpenPMIx.
namespace dlaunch::launcher {
namespace {

PmixListener* listener = nullptr;  ///< Static, since OpenPMIx's callbacks take no argument of ours.

/// A list of pmix_info_t that grows, and is OpenPMIx's to read.
class Infos {
 public:
  Infos() = default;
  Infos(const Infos&) = delete;
  Infos& operator=(const Infos&) = delete;
  ~Infos() {
    for (auto& info : infos_) PMIX_INFO_DESTRUCT(&info);
  }

  void add(const char* key, const std::string& text) { load(key, text.c_str(), PMIX_STRING); }
  /// The pattern is one that OpenPMIx has made.
  void add_pattern(const char* key, const char* pattern) { load(key, pattern, PMIX_REGEX); }
  void add(const char* key, std::uint32_t number) { load(key, &number, PMIX_UINT32); }
  void add_short(const char* key, std::uint16_t number) { load(key, &number, PMIX_UINT16); }
  void add_rank(const char* key, int number) {
    const auto rank = static_cast<pmix_rank_t>(number);
    load(key, &rank, PMIX_PROC_RANK);
  }
  /// The nested list is copied.
  void add(const char* key, Infos& nested) {
    pmix_data_array_t array;
    array.type = PMIX_INFO;
    array.size = nested.size();
    array.array = nested.data();
    load(key, &array, PMIX_DATA_ARRAY);
  }
  pmix_info_t* data() { return infos_.data(); }
  std::size_t size() const { return infos_.size(); }

 private:
  void load(const char* key, const void* value, pmix_data_type_t type) {
    pmix_info_t& info = infos_.emplace_back();
    PMIX_INFO_CONSTRUCT(&info);
    PMIx_Info_load(&info, key, value, type);
  }
  std::vector<pmix_info_t> infos_;
};

/// Waits for what OpenPMIx does on its own thread, which takes milliseconds.
class Done {
 public:
  static void call(pmix_status_t status, void* place) {
    auto& told = *static_cast<Told*>(place);
    const std::lock_guard lock(told.mutex);
    told.status = status;
    told.changed.notify_one();
  }
  /// The argument for a call that is also given `call`.
  void* place() const { return told_.get(); }
  /// Waits for that call's status. PMIX_ERR_TIMEOUT: no word came in time, and the call may still
  /// use its arguments.
  pmix_status_t of(pmix_status_t begun) {
    if (begun == PMIX_OPERATION_SUCCEEDED) return PMIX_SUCCESS;
    if (begun != PMIX_SUCCESS) return begun;
    std::unique_lock lock(told_->mutex);
    if (told_->changed.wait_for(lock, patience, [this] { return told_->status.has_value(); })) {
      return *told_->status;
    }
    // The memory is left alone on purpose: OpenPMIx may report later.
    lock.unlock();
    static_cast<void>(told_.release());
    return PMIX_ERR_TIMEOUT;
  }

 private:
  struct Told {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<pmix_status_t> status;
  };
  static constexpr auto patience = std::chrono::seconds(30);

  std::unique_ptr<Told> told_ = std::make_unique<Told>();
};

// ---- What ranks want ----

int rank_of(const pmix_proc_t* who) { return static_cast<int>(who->rank); }

pmix_status_t connected(const pmix_proc_t* who, void*, pmix_info_t*, std::size_t, pmix_op_cbfunc_t,
                        void*) {
  listener->on_connected(rank_of(who));
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t finalized(const pmix_proc_t* who, void*, pmix_op_cbfunc_t, void*) {
  listener->on_finalized(rank_of(who));
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t aborted(const pmix_proc_t* who, void*, int status, const char* message, pmix_proc_t*,
                      std::size_t, pmix_op_cbfunc_t, void*) {
  listener->on_aborted(rank_of(who), status, message != nullptr ? message : "");
  return PMIX_OPERATION_SUCCEEDED;
}

int world_size = 0;  ///< Of the job that is served.
int local_size = 0;

/// What a fence brought lives until OpenPMIx has read it.
pmix_status_t fence(const pmix_proc_t* who, std::size_t count, const pmix_info_t*, std::size_t,
                    char* data, std::size_t size, pmix_modex_cbfunc_t answer, void* answered) {
  const bool whole = count == static_cast<std::size_t>(world_size) ||
                     (count == 1 && who->rank == PMIX_RANK_WILDCARD);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const Bytes mine = size > 0 ? Bytes(bytes, bytes + size) : Bytes();
  const auto done = [answer, answered](bool success, const Bytes& all) {
    if (answer == nullptr) return;
    auto* const held = new (std::nothrow) Bytes(all);
    if (!success || held == nullptr) {
      delete held;
      return answer(PMIX_ERR_LOST_CONNECTION, nullptr, 0, answered, nullptr, nullptr);
    }
    answer(
        PMIX_SUCCESS, reinterpret_cast<const char*>(held->data()), held->size(), answered,
        [](void* used) { delete static_cast<Bytes*>(used); }, held);
  };
  // A fence of a part of the world is served only if the whole world is on this node.
  if (!whole && world_size != local_size) return PMIX_ERR_NOT_SUPPORTED;
  if (whole) {
    listener->on_fence(mine, done);
  } else {
    done(true, mine);
  }
  return PMIX_SUCCESS;
}

/// Nothing can be fetched: all that ranks have made known came with a fence.
pmix_status_t fetch(const pmix_proc_t*, const pmix_info_t*, std::size_t, pmix_modex_cbfunc_t,
                    void*) {
  return PMIX_ERR_NOT_FOUND;
}

pmix_status_t publish(const pmix_proc_t* who, const pmix_info_t*, std::size_t, pmix_op_cbfunc_t,
                      void*) {
  listener->on_refused(rank_of(who), "MPI_Publish_name");
  return PMIX_ERR_NOT_SUPPORTED;
}

pmix_status_t look_up(const pmix_proc_t* who, char**, const pmix_info_t*, std::size_t,
                      pmix_lookup_cbfunc_t, void*) {
  listener->on_refused(rank_of(who), "MPI_Lookup_name");
  return PMIX_ERR_NOT_SUPPORTED;
}

pmix_status_t spawn(const pmix_proc_t* who, const pmix_info_t*, std::size_t, const pmix_app_t*,
                    std::size_t, pmix_spawn_cbfunc_t, void*) {
  listener->on_refused(rank_of(who), "MPI_Comm_spawn");
  return PMIX_ERR_NOT_SUPPORTED;
}

pmix_server_module_t what_we_do() {
  pmix_server_module_t module;
  std::memset(&module, 0, sizeof module);
  module.client_connected2 = connected;
  module.client_finalized = finalized;
  module.abort = aborted;
  module.fence_nb = fence;
  module.direct_modex = fetch;
  module.publish = publish;
  module.lookup = look_up;
  module.spawn = spawn;
  return module;
}

// ---- What is told of a job ----

std::string joined(const std::vector<std::string>& items, char between) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : std::string(1, between)) + item;
  return text;
}

std::string ranks_of(const PmixNode& node) {
  std::vector<std::string> ranks;
  for (int i = 0; i < node.ranks; ++i) ranks.push_back(std::to_string(node.first_rank + i));
  return joined(ranks, ',');
}

/// Freed by free().
using Text = std::unique_ptr<char, decltype(&std::free)>;

void describe(Infos& infos, const PmixJob& job) {
  const PmixNode& own = job.nodes[job.own];
  const auto world = static_cast<std::uint32_t>(job.world_size());
  const auto local = static_cast<std::uint32_t>(own.ranks);
  infos.add(PMIX_JOBID, job.name_space);
  infos.add(PMIX_UNIV_SIZE, world);
  infos.add(PMIX_JOB_SIZE, world);
  infos.add(PMIX_MAX_PROCS, world);
  infos.add(PMIX_JOB_NUM_APPS, std::uint32_t{1});
  infos.add(PMIX_NUM_NODES, static_cast<std::uint32_t>(job.nodes.size()));
  infos.add(PMIX_LOCAL_SIZE, local);
  infos.add(PMIX_NODE_SIZE, local);
  infos.add(PMIX_NODEID, static_cast<std::uint32_t>(job.own));
  infos.add(PMIX_LOCAL_PEERS, ranks_of(own));
  infos.add_rank(PMIX_LOCALLDR, own.first_rank);
  infos.add(PMIX_TMPDIR, job.folder);
  infos.add(PMIX_NSDIR, job.folder);
  std::vector<std::string> names, ranks;
  for (const PmixNode& node : job.nodes) {
    names.push_back(node.name);
    ranks.push_back(ranks_of(node));
  }
  char* text = nullptr;
  if (PMIx_generate_regex(joined(names, ',').c_str(), &text) == PMIX_SUCCESS) {
    const Text held(text, &std::free);
    infos.add_pattern(PMIX_NODE_MAP, text);
  }
  if (PMIx_generate_ppn(joined(ranks, ';').c_str(), &text) == PMIX_SUCCESS) {
    const Text held(text, &std::free);
    infos.add_pattern(PMIX_PROC_MAP, text);
  }
  for (std::size_t node = 0; node < job.nodes.size(); ++node) {
    for (int i = 0; i < job.nodes[node].ranks; ++i) {
      const int rank = job.nodes[node].first_rank + i;
      Infos of_rank;
      of_rank.add_rank(PMIX_RANK, rank);
      of_rank.add(PMIX_APPNUM, std::uint32_t{0});
      of_rank.add_rank(PMIX_APP_RANK, rank);
      of_rank.add_rank(PMIX_GLOBAL_RANK, rank);
      of_rank.add_short(PMIX_LOCAL_RANK, static_cast<std::uint16_t>(i));
      of_rank.add_short(PMIX_NODE_RANK, static_cast<std::uint16_t>(i));
      of_rank.add(PMIX_NODEID, static_cast<std::uint32_t>(node));
      of_rank.add(PMIX_HOSTNAME, job.nodes[node].name);
      of_rank.add(PMIX_REINCARNATION, std::uint32_t{0});
      infos.add(PMIX_PROC_DATA, of_rank);
    }
  }
}

pmix_proc_t process(const std::string& name_space, int rank) {
  pmix_proc_t proc;
  PMIX_LOAD_PROCID(&proc, name_space.c_str(), static_cast<pmix_rank_t>(rank));
  return proc;
}

class OpenPmix final : public Pmix {
 public:
  bool begin(const PmixJob& job, std::string& why) noexcept override {
    try {
      leave();
      if (!start(job, why)) return false;
      world_size = job.world_size();
      local_size = job.nodes[job.own].ranks;
      auto infos = std::make_unique<Infos>();
      describe(*infos, job);
      Done registered;
      const PmixNode& own = job.nodes[job.own];
      const pmix_status_t status = registered.of(
          PMIx_server_register_nspace(job.name_space.c_str(), own.ranks, infos->data(),
                                      infos->size(), &Done::call, registered.place()));
      if (status == PMIX_ERR_TIMEOUT) static_cast<void>(infos.release());
      if (!went_well(status, "registering the job", why)) return false;
      name_space_ = job.name_space;
      for (int i = 0; i < own.ranks; ++i) {
        const pmix_proc_t rank = process(name_space_, own.first_rank + i);
        Done known;
        if (!went_well(known.of(PMIx_server_register_client(&rank, ::geteuid(), ::getegid(),
                                                            nullptr, &Done::call, known.place())),
                       "registering a rank", why)) {
          return false;
        }
      }
      return true;
    } catch (const std::exception& error) {
      why = error.what();
      return false;
    }
  }

  bool variables(int rank, std::vector<std::string>& variables,
                 std::string& why) noexcept override {
    const pmix_proc_t proc = process(name_space_, rank);
    char** environment = nullptr;
    const bool well =
        went_well(PMIx_server_setup_fork(&proc, &environment), "preparing a rank", why);
    for (char** line = environment; line != nullptr && *line != nullptr; ++line) {
      if (well) variables.emplace_back(*line);
      std::free(*line);
    }
    std::free(environment);
    return well;
  }

  void end() noexcept override {
    leave();
    if (std::exchange(started_, false)) PMIx_server_finalize();
  }

 private:
  bool start(const PmixJob& job, std::string& why) {
    if (started_) return true;
    Infos infos;
    infos.add(PMIX_SERVER_NSPACE, "dlaunch.server");
    infos.add_rank(PMIX_SERVER_RANK, static_cast<int>(job.own));
    infos.add(PMIX_SERVER_TMPDIR, job.folder);
    infos.add(PMIX_SYSTEM_TMPDIR, job.folder);
    infos.add(PMIX_HOSTNAME, job.nodes[job.own].name);
    module_ = what_we_do();
    started_ =
        went_well(PMIx_server_init(&module_, infos.data(), infos.size()), "starting OpenPMIx", why);
    return started_;
  }

  void leave() noexcept {
    if (name_space_.empty()) return;
    Done gone;
    PMIx_server_deregister_nspace(name_space_.c_str(), &Done::call, gone.place());
    gone.of(PMIX_SUCCESS);
    name_space_.clear();
  }

  static bool went_well(pmix_status_t status, const char* what, std::string& why) {
    if (status == PMIX_SUCCESS) return true;
    why = std::string(what) + ": " + PMIx_Error_string(status);
    return false;
  }

  pmix_server_module_t module_ = {};
  bool started_ = false;
  std::string name_space_;  ///< Empty: none is served.
};

}  // namespace
}  // namespace dlaunch::launcher

extern "C" __attribute__((visibility("default"))) dlaunch::launcher::Pmix* dlaunch_pmix(
    const char* version, dlaunch::launcher::PmixListener* heard, std::string* why) {
  static auto* const library = new dlaunch::launcher::OpenPmix;
  dlaunch::launcher::listener = heard;
  if (std::string_view(version) == DLAUNCH_VERSION) return library;
  *why = std::string("libdlaunch_pmix.so is of dlaunch " DLAUNCH_VERSION " and its user of ") +
         version + ": install both from one build";
  return nullptr;
}
