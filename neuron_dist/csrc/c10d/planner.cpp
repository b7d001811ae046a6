#include "csrc/c10d/planner.h"

#include <memory>
#include <utility>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

namespace neuron {

namespace py = pybind11;

namespace {

py::object& factory() {
  static auto* object = new py::object(); // never destroyed: it would need Python after its end
  return *object;
}

// A Python object that threads without the GIL may copy and drop.
std::shared_ptr<py::object> shared(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            if (!Py_IsInitialized()) return; // the process ends; leave it
            const py::gil_scoped_acquire acquired;
            delete held;
          }};
}

using Numbers = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

std::shared_ptr<ReductionOrders> make_orders(
    uint64_t units, const Numbers& begins, const Numbers& ends, const Numbers& which,
    const py::array_t<int32_t, py::array::c_style | py::array::forcecast>& words, const Numbers& lengths) {
  auto orders = std::make_shared<ReductionOrders>();
  orders->units = units;
  const int32_t* word = words.data();
  for (py::ssize_t i = 0; i < lengths.size(); word += lengths.at(i++)) {
    TORCH_CHECK_VALUE(
        lengths.at(i) > 0 && lengths.at(i) <= words.data() + words.size() - word, "program ", i, " of ", lengths.at(i),
        " words lies outside the ", words.size());
    orders->orders.push_back(std::make_shared<const Order>(std::vector<int32_t>(word, word + lengths.at(i))));
  }
  for (py::ssize_t i = 0; i < begins.size(); ++i) {
    orders->chunks.push_back(
        {static_cast<uint64_t>(begins.at(i)), static_cast<uint64_t>(ends.at(i)), static_cast<uint32_t>(which.at(i))});
    TORCH_CHECK_VALUE(
        orders->chunks.back().order < orders->orders.size(), "chunk ", i, " names an order that is not there");
  }
  return orders;
}

std::vector<Plan::Use> make_uses(const Numbers& links, const py::array_t<double, py::array::forcecast>& seconds) {
  TORCH_CHECK_VALUE(links.size() == seconds.size(), links.size(), " links with ", seconds.size(), " times");
  std::vector<Plan::Use> uses;
  uses.reserve(links.size());
  for (py::ssize_t i = 0; i < links.size(); ++i) {
    const auto link = static_cast<uint32_t>(links.at(i));
    TORCH_CHECK_VALUE(uses.empty() || uses.back().link < link, "links must ascend");
    uses.push_back({link, seconds.at(i)});
  }
  return uses;
}

} // namespace

void set_planner_factory(py::object function) { factory() = std::move(function); }

PlannerChoice make_planner(
    const c10::intrusive_ptr<Options>& options, const std::vector<uint64_t>& global_ranks, int rank) {
  const py::gil_scoped_acquire acquired;
  if (!factory()) return {};
  const py::object made = factory()(options, global_ranks, rank);
  if (made.is_none()) return {};
  const auto [plan, round_each_step] = made.cast<std::pair<py::object, bool>>();
  return {
      [plan = shared(plan)](const Question& question) {
        const py::gil_scoped_acquire acquired;
        const py::object made = (*plan)(name(question.op), question.bytes, question.root, question.peer, question.faults);
        return std::shared_ptr<const Plan>(made.cast<std::shared_ptr<Plan>>());
      },
      round_each_step};
}

void bind_plan(py::module& m) {
  py::class_<ReductionOrders, std::shared_ptr<ReductionOrders>>(
      m, "ReductionOrders", "Which part of a schedule's space is summed in which order, in units of the space.")
      .def(
          py::init(&make_orders), py::arg("units"), py::arg("begins"), py::arg("ends"), py::arg("which"),
          py::arg("words"), py::arg("lengths"));
  py::class_<Plan, std::shared_ptr<Plan>>(m, "Plan", "How the fabric does one collective of one size.")
      .def(
          py::init([](std::string algorithm, int steps, double seconds, std::shared_ptr<ReductionOrders> orders,
                      const Numbers& links, const py::array_t<double, py::array::forcecast>& link_seconds) {
            return std::make_shared<Plan>(
                Plan{std::move(algorithm), steps, seconds, std::move(orders), make_uses(links, link_seconds)});
          }),
          py::arg("algorithm"), py::arg("steps"), py::arg("seconds"), py::arg("orders"), py::arg("links"),
          py::arg("link_seconds"))
      .def_readonly("algorithm", &Plan::algorithm)
      .def_readonly("steps", &Plan::steps)
      .def_readonly("seconds", &Plan::seconds);
  m.def("set_planner_factory", &set_planner_factory, py::arg("factory"));
}

} // namespace neuron
