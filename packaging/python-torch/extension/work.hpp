#pragma once

#include "packaging/python-torch/extension/group.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace dlaunch::torch_backend {

/// What torch holds of a started call.
class StartedWork final : public c10d::Work {
 public:
  struct What {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    std::string name;  ///< "all_reduce", for messages.
    const char* profiled = nullptr;
    std::uint64_t sequence = 0;
    std::chrono::milliseconds timeout{0};
    std::vector<at::Tensor> in;
    std::vector<at::Tensor> out;
    std::function<void()> ended = {};  ///< Called once it is known to be complete.
    Copies copies = {};                ///< Made when it is complete.
    /// The tensors of each list, if `out` has several lists; else 0.
    std::size_t list_size = 0;
  };
  StartedWork(int rank, What what, std::shared_ptr<Group> group, std::shared_ptr<Started> started);

  /// To be called once, when others may hold it.
  void begin_watch();

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return what_.out; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return what_.sequence; }

  const std::shared_ptr<Started>& started() const noexcept { return started_; }

 private:
  void note_end();
  /// What its future has, as gloo's has it.
  c10::IValue value() const;
  void when_complete(std::function<void()> then);
  [[noreturn]] void throw_late(std::chrono::milliseconds limit, bool is_over) const;

  const What what_;
  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Started> started_;
  std::once_flag noted_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Several works as one.
class WorksTogether final : public c10d::Work {
 public:
  WorksTogether(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override {}
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace dlaunch::torch_backend
