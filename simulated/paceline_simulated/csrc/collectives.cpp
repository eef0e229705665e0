// The c10d backend "simccl" as torch sees it. Each collective goes to a Python object, which queues
// it and returns a QueuedWork: an event on the communication stream, as in ProcessGroupNCCL.cpp.
#include "collectives.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/exception.h>

#include <pybind11/chrono.h>

#include <chrono>
#include <thread>

namespace sim {
namespace {

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
constexpr auto WORK_POLL = std::chrono::milliseconds(1);

class QueuedWork final : public c10d::Work {
 public:
  // Records the end of what the current stream holds, which is the communication stream. `kept`:
  // the collective's tensors, a list of Python's that is emptied when the caller's stream waits.
  // So torch keeps them since pytorch pull request 150398; record_stream would keep their memory
  // until the collective has run, and a host that runs ahead would fill the device.
  QueuedWork(c10::Device device, Tensors outputs, py::list kept, bool blocks_host)
      : device_(device),
        outputs_(std::move(outputs)),
        kept_(std::move(kept)),
        blocks_host_(blocks_host),
        done_(device.type()) {
    c10::impl::VirtualGuardImpl guard(device.type());
    done_.record(guard.getStream(device));
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device});
    future_->markCompleted(c10::IValue(outputs_));
  }
  ~QueuedWork() override {
    py::gil_scoped_acquire gil;
    kept_.release().dec_ref();
  }
  bool isCompleted() override { return done_.query(); }
  bool isSuccess() const override { return done_.query(); }
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void synchronize() override { wait(kNoTimeout); }

  // Orders the current stream behind the collective. Only a barrier or a timeout makes the host
  // wait.
  bool wait(std::chrono::milliseconds timeout) override {
    c10::impl::VirtualGuardImpl guard(device_.type());
    done_.block(guard.getStream(device_));
    {
      py::gil_scoped_acquire gil;
      kept_.attr("clear")();
    }
    if (timeout != kNoTimeout) {
      const auto deadline = std::chrono::steady_clock::now() + timeout;
      while (!done_.query()) {
        if (std::chrono::steady_clock::now() > deadline)
          C10_THROW_ERROR(DistBackendError, "simccl: a collective did not end within its timeout");
        std::this_thread::sleep_for(WORK_POLL);
      }
    } else if (blocks_host_) {
      done_.synchronize();
    }
    return true;
  }

 private:
  const c10::Device device_;
  const Tensors outputs_;
  py::list kept_;
  const bool blocks_host_;
  c10::Event done_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

struct SimOptions final : c10d::Backend::Options {
  explicit SimOptions(std::chrono::milliseconds timeout) : Options("simccl", timeout) {}
};

class SimBackend final : public c10d::Backend {
 public:
  SimBackend(int rank, int size, std::chrono::milliseconds timeout, py::object collectives)
      : Backend(rank, size),
        options_(c10::make_intrusive<SimOptions>(timeout)),
        collectives_(std::move(collectives)) {}
  ~SimBackend() override {
    py::gil_scoped_acquire gil;
    collectives_.release().dec_ref();
  }
  const std::string getBackendName() const override { return "simccl"; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  c10::intrusive_ptr<SimOptions> options() const { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override {
    options_->timeout = timeout;
    call("set_timeout", timeout);
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return 0; }

  void eagerConnectSingleDevice(at::Device) override { call("connect"); }
  void no_color_split() { call("no_color_split"); }
  c10::intrusive_ptr<Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& options) override {
    py::gil_scoped_acquire gil;
    py::object child = collectives_.attr("split")(store, ranks, options->timeout);
    if (child.is_none()) return nullptr;
    const auto rank = child.attr("rank").cast<int>();
    return c10::make_intrusive<SimBackend>(
        rank, int(ranks.size()), options->timeout, std::move(child));
  }
  void abort() override { call("abort"); }
  void shutdown() override { call("shutdown"); }
  void startCoalescing() override { call("start_coalescing"); }
  WorkPtr endCoalescing() override { return queue("end_coalescing"); }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return queue("all_reduce", tensors, options.reduceOp);
  }
  WorkPtr allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return queue("all_reduce", tensors, options.reduceOp);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return queue("broadcast", tensors[options.rootTensor], options.rootRank);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return queue("reduce", tensors[options.rootTensor], options.rootRank, options.reduceOp);
  }
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    return queue("all_gather", outputs, inputs);
  }
  WorkPtr allgather_coalesced(
      TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    return queue("all_gather_coalesced", outputs, inputs);
  }
  WorkPtr _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    return queue("all_gather_single", Tensors{output}, Tensors{input});
  }
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    return queue("all_gather_single", outputs, inputs);
  }
  WorkPtr reduce_scatter(
      Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    return queue("reduce_scatter", outputs, inputs, options.reduceOp);
  }
  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    return queue("reduce_scatter_single", Tensors{output}, Tensors{input}, options.reduceOp);
  }
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    return queue("reduce_scatter_single", outputs, inputs, options.reduceOp);
  }
  WorkPtr alltoall_base(
      at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions&) override {
    return queue("all_to_all_single", output, input, output_sizes, input_sizes);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    return queue("all_to_all", outputs, inputs);
  }
  WorkPtr gather(
      TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return queue("gather", outputs, inputs, options.rootRank);
  }
  WorkPtr scatter(
      Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    return queue("scatter", outputs, inputs, options.rootRank);
  }
  WorkPtr send(Tensors& tensors, int to, int) override { return queue("send", tensors, to); }
  WorkPtr recv(Tensors& tensors, int from, int) override { return queue("recv", tensors, from); }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return queue("barrier", options.device);
  }

 private:
  template <class... Arguments>
  void call(const char* name, const Arguments&... arguments) {
    py::gil_scoped_acquire gil;
    collectives_.attr(name)(arguments...);
  }
  template <class... Arguments>
  WorkPtr queue(const char* name, const Arguments&... arguments) {
    py::gil_scoped_acquire gil;
    return collectives_.attr(name)(arguments...).template cast<WorkPtr>();
  }
  const c10::intrusive_ptr<SimOptions> options_;
  py::object collectives_;
};

}  // namespace

void bind_collectives(py::module_& m) {
  py::module_::import("torch.distributed");  // the base classes
  py::class_<SimOptions, c10::intrusive_ptr<SimOptions>, c10d::Backend::Options>(
      m, "CollectiveOptions")
      .def("__deepcopy__", [](const SimOptions& self, const py::dict&) {
        return c10::make_intrusive<SimOptions>(self);
      });
  py::class_<SimBackend, c10::intrusive_ptr<SimBackend>, c10d::Backend>(m, "CollectiveBackend")
      .def(py::init([](int rank, int size, std::chrono::milliseconds timeout, py::object python) {
        return c10::make_intrusive<SimBackend>(rank, size, timeout, std::move(python));
      }))
      .def_property_readonly("options", &SimBackend::options)
      .def("perform_nocolor_split", [](SimBackend& self, const py::object&) {
        self.no_color_split();
      });
  m.def("queued_work", [](c10::Device device, Tensors outputs, py::list kept,
                          bool blocks_host) -> WorkPtr {
    return c10::make_intrusive<QueuedWork>(
        device, std::move(outputs), std::move(kept), blocks_host);
  });
}

}  // namespace sim
